"""Organisations with their keys, settings, tags and audit log: who may do what, where."""
