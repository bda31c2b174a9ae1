"""Readers of archives: bytes come in, placed Markdown goes out."""
