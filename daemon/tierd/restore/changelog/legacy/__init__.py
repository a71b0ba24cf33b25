"""The reader of Kafka Streams 2.3 to 2.5: its methods, registries and numbers (changelog-restore 1)."""
