"""Batches and the records in them, as bytes and as values: read, written, stamped, compressed and validated."""
