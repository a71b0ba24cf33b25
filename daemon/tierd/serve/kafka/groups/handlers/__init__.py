"""Handlers of the requests about groups: from kio's messages to the coordinator, and back."""
