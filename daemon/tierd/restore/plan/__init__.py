"""Plans of restores: pure decisions from metadata, catalogue and arguments."""
