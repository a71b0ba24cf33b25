"""Connections of push replication: listener, links to peers, TLS and node identities (push-replication 3.5)."""
