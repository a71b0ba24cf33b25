"""Checkpoints of state stores on disk: the file of Kafka Streams, and the facts that tierd keeps beside it."""
