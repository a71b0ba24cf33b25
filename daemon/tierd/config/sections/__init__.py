"""Sections of the file: a frozen class of settings for each room that has settings."""
