"""Rebuild of the metadata from the bucket alone, after a loss of the metadata store (DESIGN 4)."""
