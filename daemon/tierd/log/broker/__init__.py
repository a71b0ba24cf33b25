"""A broker's own log dirs, read and never written: what is there, what is stable, what changed."""
