"""The tier held against its metadata, its objects and its offsets."""
