"""Kernels in plain Python: the reference of the compiled twins, and the kernels where nothing can be compiled."""

from tierd.kernels.reference.gathering import gather, gather_headers
from tierd.kernels.reference.keys import hash_keys, latest_per_key
from tierd.kernels.reference.records import decode_batches, decode_records
from tierd.kernels.reference.rewriting import rewrite_batches, select_records
from tierd.kernels.reference.rows import latest_in_order, pack_rows

__all__ = [
    "decode_batches",
    "decode_records",
    "gather",
    "gather_headers",
    "hash_keys",
    "latest_in_order",
    "latest_per_key",
    "pack_rows",
    "rewrite_batches",
    "select_records",
]
