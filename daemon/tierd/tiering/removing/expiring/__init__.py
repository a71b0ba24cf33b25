"""Expiration of one partition: the plan of what leaves the tier now, and the task that carries the plan out."""
