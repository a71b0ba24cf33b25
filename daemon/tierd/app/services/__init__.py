"""Stores as the process uses them: opened, owned, watched, and their requests counted."""
