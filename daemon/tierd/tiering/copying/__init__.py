"""Copies: the way from a rolled segment to a finished one in the tier."""
