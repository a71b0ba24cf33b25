"""Copies of standbys compared with the tier: ``tierd verify --standby``."""
