"""The classic group protocol, pure: events in, answers and rows to store out."""
