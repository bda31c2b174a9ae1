"""Readers of what holds other files: bytes come in, placed Markdown goes out, and files."""
