"""The verbs of ``tierd endpoint``."""
