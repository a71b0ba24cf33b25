"""Reads of tier and local log as one total log."""
