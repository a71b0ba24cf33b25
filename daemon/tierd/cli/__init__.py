"""The command line: one module per verb; only the one that was named is imported."""

from tierd.cli.main import main

__all__ = ["main"]
