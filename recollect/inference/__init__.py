"""Models behind protocols: texts or sound come in, vectors, scores or words go out."""
