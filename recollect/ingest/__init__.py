"""One document: content that was accepted comes in, placed chunks with vectors go out."""
