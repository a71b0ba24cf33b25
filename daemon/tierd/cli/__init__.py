"""The command line: one module per verb. Only the module of the verb that was named is imported."""

from tierd.cli.main import main

__all__ = ["main"]
