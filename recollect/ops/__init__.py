"""Care of the whole installation: purge, verify, back up, probe, encrypt again."""
