"""Codec of push replication: frames and messages, without I/O (push-replication 3)."""
