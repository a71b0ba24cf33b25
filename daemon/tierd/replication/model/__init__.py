"""Values of push replication that leader, follower and wire share: sessions, states, errors and messages."""
