"""Capacity of the broker's tiering: the slots of copies and deletions, and the quotas of bytes per second."""
