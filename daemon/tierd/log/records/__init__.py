"""Batches and their records, as bytes and as values: read, written, stamped, compressed and validated."""
