"""Partitions as the store has them, read by followers and commands that hold no claim."""
