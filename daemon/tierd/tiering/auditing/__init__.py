"""Audit and repair: the tier compared with its metadata, its objects and its offsets."""
