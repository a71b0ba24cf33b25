"""Coordination of groups: which daemon does it, its timers, its writes, and the clients that wait."""
