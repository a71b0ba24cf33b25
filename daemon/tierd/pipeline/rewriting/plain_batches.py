"""Plain batches: those whose fate only their own records decide, rewritten many at a time (log-format 9.5 and 9.6)."""

from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from tierd.errors import InvalidRecordError
from tierd.kernels import RecordFault, rewrite_batches
from tierd.log import (
    CODEC_BITS,
    FLAGS_AT,
    HAS_DELETE_HORIZON,
    IS_CONTROL,
    IS_LOG_APPEND_TIME,
    IS_TRANSACTIONAL,
    Compression,
    compress_batch,
    stamp_crc,
)
from tierd.pipeline.rewriting.checked_run import CheckedRun
from tierd.pipeline.rewriting.fate import may_be_protected
from tierd.pipeline.rewriting.rules import RewriteRules


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatches:
    """Batches in the output, one behind the other, each with records; those that are gone are none of them.

    Attributes:
        data: all of them.
        ends: where in ``data`` each ends.
        last_offsets: int64[n], as their headers have it.
        record_counts: int64[n].
        max_timestamps_ms: int64[n], of their headers.
        earliest_ms: int64[n], of records and header.
        latest_ms: int64[n], likewise.
        copied_count: how many are as they were; all others were rewritten.
    """

    data: memoryview = field(repr=False)
    ends: list[int]
    last_offsets: np.ndarray
    record_counts: np.ndarray
    max_timestamps_ms: np.ndarray
    earliest_ms: np.ndarray
    latest_ms: np.ndarray
    copied_count: int


def plain_batches(stretch: CheckedRun, keep: np.ndarray, rules: RewriteRules) -> np.ndarray:
    """Return the batches of data outside of transactions that have no delete horizon and get none: bool[n].

    Such a batch is copied if it keeps all records, rewritten if it keeps some, and gone if it keeps none.

    Args:
        stretch: n batches with m rows.
        keep: bool[m], which records stay.
        rules: of the pass.
    """
    plain = ~stretch.flagged(IS_CONTROL | IS_TRANSACTIONAL | HAS_DELETE_HORIZON)
    if rules.compacts:
        tombstones = keep & (stretch.rows.value_size < 0)
        if tombstones.any():
            plain &= stretch.count_by_batch(tombstones) == 0
    loses_all = np.flatnonzero(stretch.count_by_batch(keep) == 0)
    asked = may_be_protected(
        stretch.headers["producer_id"][loses_all].astype(np.int64), stretch.last_offsets[loses_all], rules
    )
    asked |= np.diff(stretch.first_rows)[loses_all] == 0  # it came empty
    plain[loses_all[asked]] = False
    return plain


def rewrite_plain(stretch: CheckedRun, keep: np.ndarray) -> NewBatches | None:
    """Rewrite plain batches; None when nothing of them is left.

    Args:
        stretch: n of them with m rows.
        keep: bool[m], which records stay.

    Raises:
        InvalidRecordError: their records cannot be told apart.
    """
    counts = stretch.count_by_batch(keep)
    left = np.flatnonzero(counts)
    if not left.size:
        return None
    headers, counts = stretch.headers[left], counts[left]
    is_copied = counts == np.diff(stretch.first_rows)[left]
    base_ms, max_ms, earliest_ms, latest_ms = _timestamps(headers, is_copied, counts, stretch.rows.timestamp_ms[keep])
    data, ends = _rewritten(stretch, keep, left, base_ms, max_ms)
    if stretch.is_compressed:
        data, ends = _compressed(stretch, left, is_copied, data, ends)
    else:
        for index in np.flatnonzero(~is_copied).tolist():
            stamp_crc(data[ends[index - 1] if index else 0 : ends[index]])
    return NewBatches(
        data=data,
        ends=ends,
        last_offsets=stretch.last_offsets[left],
        record_counts=counts,
        max_timestamps_ms=max_ms,
        earliest_ms=earliest_ms,
        latest_ms=latest_ms,
        copied_count=int(np.count_nonzero(is_copied)),
    )


def _timestamps(
    headers: np.ndarray, is_copied: np.ndarray, counts: np.ndarray, kept_ms: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Base and maximum for the headers, earliest and latest of records and header: int64[n] each.

    The base becomes that of the first record, as Kafka's builder does, which knows no other; the broker's own stays.

    Args:
        headers: as they were.
        is_copied: which stay as they are.
        counts: how many records each keeps, at least one.
        kept_ms: of all those records.
    """
    starts = np.cumsum(counts) - counts
    earliest, latest = np.minimum.reduceat(kept_ms, starts), np.maximum.reduceat(kept_ms, starts)
    is_appended = (headers["attributes"] & IS_LOG_APPEND_TIME) != 0
    base = np.where(is_appended, headers["base_timestamp_ms"], kept_ms[starts])
    greatest = np.where(is_appended | is_copied, headers["max_timestamp_ms"], np.maximum(latest, -1))
    return base, greatest, np.minimum(earliest, greatest), np.maximum(latest, greatest)


def _rewritten(
    stretch: CheckedRun, keep: np.ndarray, left: np.ndarray, base_ms: np.ndarray, max_ms: np.ndarray
) -> tuple[memoryview, list[int]]:
    """The batches that are left, uncompressed, without new checksums, and where each ends."""
    bases, greatest = np.zeros((2, len(stretch)), dtype=np.int64)
    bases[left], greatest[left] = base_ms, max_ms
    found = rewrite_batches(stretch.plain, stretch.plain_bounds, stretch.first_rows, keep, (bases, greatest))
    if isinstance(found, RecordFault):
        raise InvalidRecordError(stretch.name, stretch.position + int(stretch.bounds[0]), found.problem)
    return found[0], np.asarray(found[1])[left].tolist()


def _compressed(
    stretch: CheckedRun, left: np.ndarray, is_copied: np.ndarray, plain: memoryview, ends: list[int]
) -> tuple[memoryview, list[int]]:
    """The same compressed again, those that were copied as they lie in the log."""
    pieces: list[bytes | bytearray | memoryview] = []
    for index, start, end, copied in zip(left.tolist(), [0, *ends], ends, is_copied.tolist(), strict=False):
        begin, stop = stretch.bounds[index : index + 2].tolist()
        codec = Compression(stretch.data[begin + FLAGS_AT] & CODEC_BITS)
        pieces.append(stretch.data[begin:stop] if copied else compress_batch(plain[start:end], codec))
    return memoryview(b"".join(pieces)), list(accumulate(map(len, pieces)))
