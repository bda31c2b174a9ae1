"""Measurements as ratios: each figure beside what the same machine does bare, in the same run."""
