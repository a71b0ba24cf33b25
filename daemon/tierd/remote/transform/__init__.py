"""Transformation of a segment's bytes on their way to the store and back: chunks, compressed, then encrypted."""
