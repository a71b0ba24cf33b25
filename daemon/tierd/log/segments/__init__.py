"""Segments of a log: append, roll, read, recovery, replacement and removal."""
