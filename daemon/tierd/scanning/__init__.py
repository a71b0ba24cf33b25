"""Records of the tier in Python, as batches of Arrow (docs/python.md). The room is imported without pyarrow."""

from tierd.scanning.opening import async_reader, reader, require_pyarrow

__all__ = ["async_reader", "reader", "require_pyarrow"]
