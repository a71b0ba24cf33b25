"""Metadata from the bucket alone, for when the metadata store is lost (DESIGN 4)."""
