"""Readers of PDF: bytes come in, placed Markdown goes out."""
