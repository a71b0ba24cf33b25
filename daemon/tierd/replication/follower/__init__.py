"""Follower side of push replication: the rules of an append, pull mode with truncation, and the standby."""
