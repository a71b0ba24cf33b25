"""Producer snapshots and transaction indexes of a staged directory (changelog-restore 4.2, step 8)."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tierd.errors import LogError
from tierd.log import (
    InvalidTransactionStateError,
    ProducerStateEntry,
    encode_producer_snapshot,
    file_name,
    parse_producer_snapshot,
    read_producer_snapshot,
    rebuild_producers,
)
from tierd.restore.log_dir.segment_staging import StagedSegment
from tierd.restore.log_dir.staged_files import write_durably

_REQUIRED = 3  # at the bases of the last two segments, and at the log end: a broker loads its producers from them


class StagedProducers:
    """Producers at the ends of staged segments: fetched, or replayed from the nearest known ones before."""

    def __init__(self, segments: Sequence[StagedSegment]) -> None:
        self._segments = segments
        self._replayed_last: tuple[int, bytes] | None = None  # the segment, and the snapshot at its end

    def snapshot_at_end(self, index: int) -> bytes:
        """Return the producer snapshot at the end of a segment. Blocking.

        Raises:
            LogError: the batches contradict each other, or cannot be read.
        """
        fetched = self._fetched(index)
        if fetched is not None:
            return encode_producer_snapshot(fetched)
        return self._replayed(index)[0]

    def transaction_index(self, index: int) -> bytes:
        """Return the transaction index of a segment, built anew. Blocking.

        Raises:
            LogError: as ``snapshot_at_end``.
        """
        return self._replayed(index)[1]

    def _replayed(self, index: int) -> tuple[bytes, bytes]:
        """Replay up to the end of a segment; from the log's begin if the snapshot before contradicts the batches."""
        before, first = self._state_before(index)
        try:
            rebuilt = self._replay(before, first, index)
        except InvalidTransactionStateError:
            if not before:
                raise
            rebuilt = self._replay((), 0, index)
        self._replayed_last = index, rebuilt[0]
        return rebuilt

    def _state_before(self, index: int) -> tuple[tuple[ProducerStateEntry, ...], int]:
        """Return the nearest known state before a segment, and the segment that begins there."""
        for at in range(index - 1, -1, -1):
            if self._replayed_last is not None and self._replayed_last[0] == at:
                return parse_producer_snapshot(self._replayed_last[1], "replayed producers"), at + 1
            fetched = self._fetched(at)
            if fetched is not None:
                return fetched, at + 1
        return (), 0

    def _replay(self, before: tuple[ProducerStateEntry, ...], first: int, last: int) -> tuple[bytes, bytes]:
        segments = self._segments[first : last + 1]
        rebuilt = rebuild_producers(
            [segment.log for segment in segments],
            before,
            start_offset=segments[0].base_offset,
            end_offset=segments[-1].end_offset - 1,
        )
        return rebuilt.snapshot, rebuilt.transaction_index

    def _fetched(self, index: int) -> tuple[ProducerStateEntry, ...] | None:
        path = self._segments[index].snapshot
        if path is None or not path.exists():
            return None
        try:
            return read_producer_snapshot(path)
        except LogError:
            return None


def write_transaction_indexes(segments: Sequence[StagedSegment]) -> None:
    """Build the transaction indexes that segments lack. Blocking.

    Raises:
        LogError: the batches contradict each other, or cannot be read.
        OSError: the disk is full or failing.
    """
    history = StagedProducers(segments)
    for index, segment in enumerate(segments):
        if segment.lacks_transaction_index:
            content = history.transaction_index(index)
            if content:
                write_durably(segment.log.with_suffix(".txnindex"), content)


def write_snapshots(
    directory: Path, segments: Sequence[StagedSegment], later_offsets: Sequence[int], *, is_decided: bool
) -> None:
    """Write the producer snapshots at the bases of the segments but the first, and at the log end. Blocking.

    A broker keeps these, and does not copy a segment to a tiered storage of its own without the snapshot at its end.

    Args:
        directory: the staged directory.
        segments: its segments with records, ascending.
        later_offsets: bases of the segments behind them, which have no records, and the log end.
        is_decided: no transaction is open at the end. One that a snapshot has open, from below the log start, has no
            batch in the log and would keep the last stable offset back for ever.

    Raises:
        LogError: the batches contradict each other, or cannot be read.
        OSError: the disk is full or failing.
    """
    history, last = StagedProducers(segments), len(segments) - 1
    ends = [*enumerate(segment.base_offset for segment in segments[1:]), *((last, base) for base in later_offsets)]
    required = ends[-_REQUIRED:] if segments else []

    def write(index: int, base: int) -> None:
        snapshot = history.snapshot_at_end(index)
        if is_decided and index == last:
            entries = parse_producer_snapshot(snapshot, "snapshot at the end")
            snapshot = encode_producer_snapshot(tuple(replace(entry, current_txn_first_offset=-1) for entry in entries))
        write_durably(directory / file_name(base, ".snapshot"), snapshot)

    with suppress(LogError):  # a broker also starts without those of older segments
        for index, base in ends[: -len(required)]:
            write(index, base)
    for index, base in required:
        write(index, base)


def write_empty_snapshots(directory: Path, offsets: Iterable[int]) -> None:
    """Write snapshots without producers: of a new topic, whose producers have other ids. Blocking.

    Raises:
        OSError: the disk is full or failing.
    """
    for offset in offsets:
        write_durably(directory / file_name(offset, ".snapshot"), encode_producer_snapshot(()))
