"""``tierd log``: work on partition directories that no broker uses."""
