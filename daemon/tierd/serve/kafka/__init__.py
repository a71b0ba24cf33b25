"""The read endpoint: a read-only server of Kafka's protocol over the tier and the local logs (DESIGN 14)."""
