"""Calls of the kernels, each with the twin that pays; ``reference`` describes what each of them does."""

from secrets import token_bytes
from typing import TYPE_CHECKING, Final

from tierd.kernels.arrays import Gathered, GatheredHeaders, Numbers, PackedRows
from tierd.kernels.choice import CHOICE
from tierd.kernels.columns import SMALLEST_RECORD_BYTES, STEP_RECORDS, BatchColumns, Columns, RecordFault

if TYPE_CHECKING:
    import numpy as np

HASH_SECRET_BYTES: Final = 16
"""Size of the secret of ``hash_keys``."""

# How long the reference takes for other work than decoding, in records that it decodes in that time.
_DECODINGS_PER_HASH = 3  # of a short key
_LOOKUPS_PER_DECODING = 8
_RECORDS_SORTED_PER_DECODING = 2
_FIELDS_PER_DECODING = 8  # that it copies


def decode_records(
    payload: bytes | memoryview,
    count: int,
    *,
    base_offset: int = 0,
    base_timestamp_ms: int = 0,
    append_time_ms: int | None = None,
    start: int = 0,
    must_fill: bool = True,
) -> Columns:
    """Find the fields of ``count`` records of magic 2 with the twin that pays; see ``reference.decode_records``."""
    bounded = min(count, len(payload) // SMALLEST_RECORD_BYTES)  # a damaged header's count alone does not pay
    return CHOICE.for_records(bounded).decode_records(
        payload,
        count,
        base_offset=base_offset,
        base_timestamp_ms=base_timestamp_ms,
        append_time_ms=append_time_ms,
        start=start,
        must_fill=must_fill,
    )


def decode_batches(data: bytes | memoryview, *, start: int = 0, at_most: int = STEP_RECORDS) -> BatchColumns:
    """Find the fields of the records of many batches with the twin that pays; see ``reference.decode_batches``."""
    columns = CHOICE.for_records(0).decode_batches(data, start=start, at_most=at_most)
    CHOICE.for_records(len(columns.records))
    return columns


def new_hash_secret() -> bytes:
    """Return a fresh random secret for ``hash_keys``."""
    return token_bytes(HASH_SECRET_BYTES)


def hash_keys(
    payload: bytes | memoryview, key_start: Numbers, key_size: Numbers, secret: bytes
) -> tuple["np.ndarray", "np.ndarray"]:
    """Hash keys so that collisions cannot be made without the secret; see ``reference.keys.hash_keys``."""
    kernels = CHOICE.for_records(_DECODINGS_PER_HASH * len(key_start))
    return kernels.hash_keys(payload, key_start, key_size, secret)


def latest_per_key(hi: Numbers, lo: Numbers, position: Numbers) -> tuple["np.ndarray", "np.ndarray", "np.ndarray"]:
    """Keep one row a key, that of its largest position; see ``reference.keys.latest_per_key``."""
    return CHOICE.for_records(len(hi) // _LOOKUPS_PER_DECODING).latest_per_key(hi, lo, position)


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


def select_records(
    payload: bytes | memoryview, count: int, keep: Numbers, *, timestamp_shift_ms: int = 0
) -> bytes | RecordFault:
    """Keep some of ``count`` records, bytes unchanged, or their timestamps moved; see ``reference.select_records``."""
    return CHOICE.for_records(len(keep)).select_records(payload, count, keep, timestamp_shift_ms=timestamp_shift_ms)


def rewrite_batches(
    data: bytes | memoryview,
    bounds: Numbers,
    first_record: Numbers,
    keep: Numbers,
    timestamps_ms: tuple[Numbers, Numbers],
) -> tuple[memoryview, memoryview] | RecordFault:
    """Keep some of the records of many batches; see ``reference.rewrite_batches``."""
    kernels = CHOICE.for_records(len(keep))
    return kernels.rewrite_batches(data, bounds, first_record, keep, timestamps_ms)


def gather(payload: bytes | memoryview, starts: Numbers, sizes: Numbers) -> Gathered:
    """Copy fields behind one another, as Arrow has them; see ``reference.gather``."""
    return CHOICE.for_records(len(sizes) // _FIELDS_PER_DECODING).gather(payload, starts, sizes)


def gather_headers(
    payload: bytes | memoryview, headers_start: Numbers, header_count: Numbers
) -> GatheredHeaders | RecordFault:
    """Copy headers behind one another, as Arrow has them; see ``reference.gather_headers``."""
    kernels = CHOICE.for_records(len(header_count) // _FIELDS_PER_DECODING)
    return kernels.gather_headers(payload, headers_start, header_count)
