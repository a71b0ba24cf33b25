"""State directories of Kafka Streams, filled from changelogs so that an application restores only the tail."""
