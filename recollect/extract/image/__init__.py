"""Readers of pictures: bytes come in, placed Markdown goes out."""
