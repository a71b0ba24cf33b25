"""Stores of objects, a sub-room for each kind; a kind is imported when it is configured."""
