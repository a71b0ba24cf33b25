"""Offset, time and transaction indexes: parsed whole, or written an entry at a time."""
