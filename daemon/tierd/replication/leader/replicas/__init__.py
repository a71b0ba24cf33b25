"""Replicas of a led partition: their modes, their progress, the in-sync replicas and the high watermark."""
