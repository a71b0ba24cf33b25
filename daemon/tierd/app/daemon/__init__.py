"""The running daemon: its tasks, supervision, status, reload and stop."""
