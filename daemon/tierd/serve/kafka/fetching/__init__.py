"""Fetch: sessions, limits, waits, fencing, and the answers in every version."""
