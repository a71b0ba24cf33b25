"""What lies on local disk, seen by the tiers: partition directories, what rolled in them, what is held of it."""
