"""Both tiers read as one log."""
