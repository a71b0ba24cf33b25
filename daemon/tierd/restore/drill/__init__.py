"""Drills: restores into a scratch directory, which prove on a schedule that the tier comes back (DESIGN 13)."""
