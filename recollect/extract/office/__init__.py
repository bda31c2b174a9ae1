"""Readers of office documents and sheets: bytes come in, placed Markdown goes out."""
