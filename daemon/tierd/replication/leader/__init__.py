"""Leader side of push replication: sessions, pushers, the push manager, and what followers fetch."""
