"""Segments: appended to, rolled, read, recovered, replaced and removed."""
