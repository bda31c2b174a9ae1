"""Readers of web pages, e-books and mail: bytes come in, placed Markdown goes out."""
