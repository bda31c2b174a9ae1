"""Answers to questions, in sentences that cite the passages they rest on."""
