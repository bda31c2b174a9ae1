"""One connection: what changed at the provider comes in, changed documents go out."""
