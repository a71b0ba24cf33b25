"""Offset, time and transaction indexes: parsed as a whole, or written one entry at a time."""
