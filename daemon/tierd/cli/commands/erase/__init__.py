"""``tierd erase``: requests to erase the records of keys from the tier, their progress, and the proof."""
