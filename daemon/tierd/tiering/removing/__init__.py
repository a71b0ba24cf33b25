"""Removal from the tier: sweep, expiration and deletion; and undelete."""
