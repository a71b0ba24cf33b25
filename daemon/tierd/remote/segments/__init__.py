"""A segment as objects: its manifest, its chunks, its indexes, its tombstone; written, read, rewrapped and removed."""
