"""The parts of one process: what the configuration describes, built and opened."""
