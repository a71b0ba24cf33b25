"""The verbs of ``tierd restore``."""
