"""Rows of a store: keys and values of records behind one another, and their order, with the twin that pays."""

from typing import TYPE_CHECKING

from tierd.kernels.arrays import Numbers, PackedRows
from tierd.kernels.choice import CHOICE

if TYPE_CHECKING:
    import numpy as np

_RECORDS_SORTED_PER_DECODING = 2  # time of the reference to sort a key, in records that it decodes in that time


def pack_rows(
    out: "np.ndarray",
    at: int,
    payload: bytes | memoryview,
    keys: tuple[Numbers, Numbers],
    values: tuple[Numbers, Numbers],
    *,
    timestamps_ms: Numbers | None,
) -> PackedRows:
    """Copy keys and values of records behind one another; see ``reference.rows.pack_rows``."""
    kernels = CHOICE.for_records(len(keys[0]) // _RECORDS_SORTED_PER_DECODING)
    return kernels.pack_rows(out, at, payload, keys, values, timestamps_ms=timestamps_ms)


def latest_in_order(payload: bytes | memoryview, starts: Numbers, key_sizes: Numbers) -> "np.ndarray":
    """Sort rows by key and keep the last one of each; see ``reference.rows.latest_in_order``."""
    kernels = CHOICE.for_records(len(starts) // _RECORDS_SORTED_PER_DECODING)
    return kernels.latest_in_order(payload, starts, key_sizes)
