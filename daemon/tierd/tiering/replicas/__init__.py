"""Replicas of this host: found in the log dirs, scanned again after every event, and listed in one table."""
