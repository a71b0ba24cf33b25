"""The catalogue in the bucket: what a new cluster needs and segments do not say (DESIGN 13)."""
