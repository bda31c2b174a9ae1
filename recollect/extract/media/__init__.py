"""Readers of sound and video: bytes come in, placed Markdown goes out."""
