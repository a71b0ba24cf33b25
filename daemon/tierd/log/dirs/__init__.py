"""LogManager: log dirs to logs, with locks, checkpoints and clean markers."""
