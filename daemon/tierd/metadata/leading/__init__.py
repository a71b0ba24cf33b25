"""Partitions that this broker leads: claims, live views, and every change written through to the store."""
