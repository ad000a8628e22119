"""Correct subjects with one mistake each, which prove that every check can fail."""
