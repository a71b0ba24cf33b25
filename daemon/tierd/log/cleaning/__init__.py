"""Cleaning a compacted log: what is dirty, which segments become one, and their replacement (log-format 9)."""
