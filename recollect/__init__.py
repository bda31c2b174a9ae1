"""Recollect: takes knowledge in and makes it searchable, on your own machine."""

__version__ = "0.1.0"
