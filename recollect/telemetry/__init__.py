"""Metrics and traces: events of this process come in, figures for operators go out."""
