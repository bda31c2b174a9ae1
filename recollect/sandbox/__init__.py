"""Confinement of the child processes that read untrusted files, these processes, their pipes."""
