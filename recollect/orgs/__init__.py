"""Organisations: keys come in, who may do what goes out; with settings, tags and the audit log."""
