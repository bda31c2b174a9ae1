"""Confinement of the child processes that read untrusted files."""
