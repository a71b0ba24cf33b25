"""Kernels compiled by numba: twins of ``reference``, same signatures, same answers.

Importing this package takes about a second, and is impossible where memory must not be made executable
(``MemoryDenyWriteExecute=``): ``kernels.choice`` decides whether to import it.
"""

from tierd.kernels.compiled.gathering import gather, gather_headers
from tierd.kernels.compiled.keys import hash_keys, latest_per_key
from tierd.kernels.compiled.records import decode_batches, decode_records
from tierd.kernels.compiled.rewriting import rewrite_batches, select_records
from tierd.kernels.compiled.rows import latest_in_order, pack_rows

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
