"""Facts: texts and corrections come in, memories with their evidence go out."""
