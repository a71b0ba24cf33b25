"""Rewrite of plain batches, many at a time: their records alone decide about them (log-format 9.5 and 9.6)."""

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
from tierd.pipeline.rewriting.batch_disposition import may_be_protected
from tierd.pipeline.rewriting.checked_run import CheckedRun
from tierd.pipeline.rewriting.rules import RewriteRules


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatches:
    """Batches in the output, one behind the other, each with records; removed batches are not among them.

    Attributes:
        data: the bytes of all batches.
        ends: position in ``data`` at which each batch ends.
        last_offsets: int64[n], of the headers.
        record_counts: int64[n].
        max_timestamps_ms: int64[n], of the headers.
        earliest_ms: int64[n], of records and header.
        latest_ms: int64[n], of records and header.
        copied_count: number of batches that are as they were; all others were rewritten.
    """

    data: memoryview = field(repr=False)
    ends: list[int]
    last_offsets: np.ndarray
    record_counts: np.ndarray
    max_timestamps_ms: np.ndarray
    earliest_ms: np.ndarray
    latest_ms: np.ndarray
    copied_count: int


def plain_batches(run: CheckedRun, keep: np.ndarray, rules: RewriteRules) -> np.ndarray:
    """Return which batches are plain: bool[n].

    A plain batch is data outside of transactions. It has no delete horizon and gets none. If it keeps no record, it had
    records and is not protected. A plain batch is copied if it keeps all records, rewritten if it keeps some, and
    removed if it keeps none.

    Args:
        run: n batches with m rows.
        keep: bool[m], True for records that stay.
        rules: of the pass.
    """
    plain = ~run.flagged(IS_CONTROL | IS_TRANSACTIONAL | HAS_DELETE_HORIZON)
    if rules.compacts:
        tombstones = keep & (run.rows.value_size < 0)
        if tombstones.any():
            plain &= run.count_by_batch(tombstones) == 0
    loses_all = np.flatnonzero(run.count_by_batch(keep) == 0)
    asked = may_be_protected(run.headers["producer_id"][loses_all].astype(np.int64), run.last_offsets[loses_all], rules)
    asked |= np.diff(run.first_rows)[loses_all] == 0  # the batch was empty before
    plain[loses_all[asked]] = False
    return plain


def rewrite_plain(run: CheckedRun, keep: np.ndarray) -> NewBatches | None:
    """Rewrite plain batches; return None when no batch is left.

    Args:
        run: n plain batches with m rows.
        keep: bool[m], True for records that stay.

    Raises:
        InvalidRecordError: the records cannot be decoded.
    """
    counts = run.count_by_batch(keep)
    left = np.flatnonzero(counts)
    if not left.size:
        return None
    headers, counts = run.headers[left], counts[left]
    is_copied = counts == np.diff(run.first_rows)[left]
    base_ms, max_ms, earliest_ms, latest_ms = _timestamps(headers, is_copied, counts, run.rows.timestamp_ms[keep])
    data, ends = _rewritten(run, keep, left, base_ms, max_ms)
    if run.is_compressed:
        data, ends = _compressed(run, left, is_copied, data, ends)
    else:
        for index in np.flatnonzero(~is_copied).tolist():
            stamp_crc(data[ends[index - 1] if index else 0 : ends[index]])
    return NewBatches(
        data=data,
        ends=ends,
        last_offsets=run.last_offsets[left],
        record_counts=counts,
        max_timestamps_ms=max_ms,
        earliest_ms=earliest_ms,
        latest_ms=latest_ms,
        copied_count=int(np.count_nonzero(is_copied)),
    )


def _timestamps(
    headers: np.ndarray, is_copied: np.ndarray, counts: np.ndarray, kept_ms: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return base and maximum for the headers, earliest and latest of records and header: int64[n] each.

    The base becomes the timestamp of the first kept record, as in Kafka's builder; with LogAppendTime it stays.

    Args:
        headers: headers before the rewrite.
        is_copied: True for batches that stay as they are.
        counts: number of records that each batch keeps, at least one.
        kept_ms: timestamps of all kept records.
    """
    starts = np.cumsum(counts) - counts
    earliest, latest = np.minimum.reduceat(kept_ms, starts), np.maximum.reduceat(kept_ms, starts)
    is_appended = (headers["attributes"] & IS_LOG_APPEND_TIME) != 0
    base = np.where(is_appended, headers["base_timestamp_ms"], kept_ms[starts])
    greatest = np.where(is_appended | is_copied, headers["max_timestamp_ms"], np.maximum(latest, -1))
    return base, greatest, np.minimum(earliest, greatest), np.maximum(latest, greatest)


def _rewritten(
    run: CheckedRun, keep: np.ndarray, left: np.ndarray, base_ms: np.ndarray, max_ms: np.ndarray
) -> tuple[memoryview, list[int]]:
    """Return the batches that are left, uncompressed, without new checksums, and the end of each."""
    bases, greatest = np.zeros((2, len(run)), dtype=np.int64)
    bases[left], greatest[left] = base_ms, max_ms
    found = rewrite_batches(run.plain, run.plain_bounds, run.first_rows, keep, (bases, greatest))
    if isinstance(found, RecordFault):
        raise InvalidRecordError(run.name, run.position + int(run.bounds[0]), found.problem)
    return found[0], np.asarray(found[1])[left].tolist()


def _compressed(
    run: CheckedRun, left: np.ndarray, is_copied: np.ndarray, plain: memoryview, ends: list[int]
) -> tuple[memoryview, list[int]]:
    """Return the batches compressed again, and the end of each; copied batches are taken from the log as they are."""
    pieces: list[bytes | bytearray | memoryview] = []
    for index, start, end, copied in zip(left.tolist(), [0, *ends], ends, is_copied.tolist(), strict=False):
        begin, stop = run.bounds[index : index + 2].tolist()
        codec = Compression(run.data[begin + FLAGS_AT] & CODEC_BITS)
        pieces.append(run.data[begin:stop] if copied else compress_batch(plain[start:end], codec))
    return memoryview(b"".join(pieces)), list(accumulate(map(len, pieces)))
