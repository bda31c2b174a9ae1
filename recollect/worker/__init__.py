"""Loops that go on by themselves: rows that are due come in, their outcome goes out."""
