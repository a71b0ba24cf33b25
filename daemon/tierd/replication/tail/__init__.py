"""Tail mode: the logs of a broker, followed without touching them, as logs that a leader pushes."""
