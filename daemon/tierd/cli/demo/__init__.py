"""A small log dir in Kafka's format that keeps growing: the broker's part of ``make run``."""
