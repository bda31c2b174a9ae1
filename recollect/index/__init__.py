"""What search reads: texts come in, numbers of words and vectors of a model go out."""
