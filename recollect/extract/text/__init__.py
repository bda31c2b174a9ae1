"""Readers of plain text, code, records and subtitles: bytes come in, placed Markdown goes out."""
