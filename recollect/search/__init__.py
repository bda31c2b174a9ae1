"""One question: words and filters come in, ranked hits go out."""
