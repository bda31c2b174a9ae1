"""One question: words and filters come in, ranked hits, or an answer from them, go out."""
