"""Local disk as the tiering sees it: partition directories, their rolled segments, and the holds on these."""
