"""Whatever goes from the tier: swept, expired, deleted, and taken back."""
