"""Cleaning of a compacted log: the dirty part, the groups of segments, and their replacement (log-format 9)."""
