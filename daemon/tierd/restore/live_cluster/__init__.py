"""Restore into a live cluster: committed records of the tier through the Kafka protocol, exactly once (DESIGN 13)."""
