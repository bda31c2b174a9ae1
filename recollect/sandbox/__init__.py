"""Child processes that are confined: untrusted files come in, what was read of them goes out."""
