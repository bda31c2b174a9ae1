"""Readers of web pages, e-books, mail and calendars: bytes come in, placed Markdown goes out."""
