"""What others are told: changes of rows come in, streams and webhooks go out."""
