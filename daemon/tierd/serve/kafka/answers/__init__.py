"""Answers about the cluster, its topics and their offsets, and the refusals of everything that writes."""
