"""Content of log files and its consequences, derived from the batches alone and not from the log's state."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tierd.log.records.batch_header import parse_header
from tierd.log.records.record import ControlRecordType, parse_control_type, parse_end_marker
from tierd.log.records.record_batch import with_data


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch with all values that the oracle uses; ``timestamps`` are (timestamp, offset) of each record."""

    data: bytes = field(repr=False)
    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    is_transactional: bool
    marker: ControlRecordType | None
    coordinator_epoch: int
    max_timestamp_ms: int
    timestamps: tuple[tuple[int, int], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Segment:
    """The whole batches of one ``.log`` file, and the number of bytes behind them."""

    base_offset: int
    batches: tuple[Batch, ...]
    torn_bytes: int


@lru_cache(maxsize=20_000)
def decode(data: bytes) -> Batch:
    """Decode the bytes of one batch.

    Raises:
        CorruptRecordError: the bytes are no batch.
        AssertionError: its checksum is wrong.
    """
    header = parse_header(data, 0, name="batch", position=0)
    assert header is not None
    assert header.size_bytes == len(data)
    batch = with_data(header, memoryview(data))
    assert batch.is_valid, f"checksum of the batch at {header.base_offset}"
    records = list(batch.records())
    marker, coordinator_epoch = None, -1
    if batch.is_control:
        marker, coordinator_epoch = parse_control_type(records[0].key), parse_end_marker(records[0].value)
    return Batch(
        data=data,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        last_sequence=header.last_sequence,
        is_transactional=header.is_transactional,
        marker=marker,
        coordinator_epoch=coordinator_epoch,
        max_timestamp_ms=header.max_timestamp_ms,
        timestamps=tuple((record.timestamp_ms, record.offset) for record in records),
    )


def split(data: bytes) -> tuple[list[bytes], int]:
    """Cut concatenated batches apart; count bytes at the end that are neither a whole batch nor preallocated zeros."""
    batches: list[bytes] = []
    at = 0
    while at < len(data) and data[at : at + 12] != bytes(12):
        header = parse_header(data, at, name="log", position=at)
        if header is None or at + header.size_bytes > len(data):
            return batches, len(data) - at
        batches.append(data[at : at + header.size_bytes])
        at += header.size_bytes
    assert not any(data[at:]), "something follows the zeros"
    return batches, 0


def segments_of(files: dict[Path, bytes], directory: Path) -> list[Segment]:
    """Return every segment in ``directory``, by base offset."""
    found = []
    for path, data in sorted(files.items()):
        if path.parent == directory and path.name.endswith(".log"):
            batches, torn_bytes = split(data)
            found.append(Segment(int(path.name[:20]), tuple(map(decode, batches)), torn_bytes))
    return found


@dataclass(slots=True)
class ProducerView:
    """State of a producer after its batches in order."""

    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    txn_first_offset: int = -1
    seen_up_to: int = -1
    last_timestamp_ms: int = -1
    last_data_timestamp_ms: int = -1

    @property
    def next_sequence(self) -> int:
        return self.last_sequence + 1


@dataclass(frozen=True, slots=True)
class Aborted:
    """An aborted transaction; ``earliest_open`` is the first offset of the oldest transaction open at its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    earliest_open: int


def replay(batches: Iterable[Batch]) -> tuple[dict[int, ProducerView], list[Aborted]]:
    """Return the producers and the aborted transactions of a sequence of batches (log-format 4.4, 3.2)."""
    producers: dict[int, ProducerView] = {}
    aborted = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        view = producers.setdefault(batch.producer_id, ProducerView())
        view.seen_up_to, view.last_timestamp_ms = batch.last_offset, batch.max_timestamp_ms
        if batch.producer_epoch != view.epoch:
            view.epoch, view.last_sequence, view.last_offset = batch.producer_epoch, -1, -1
        if batch.marker is None:
            view.last_sequence, view.last_offset = batch.last_sequence, batch.last_offset
            view.last_data_timestamp_ms = batch.max_timestamp_ms
            if batch.is_transactional and view.txn_first_offset < 0:
                view.txn_first_offset = batch.base_offset
            continue
        first = view.txn_first_offset
        view.txn_first_offset = -1
        if first >= 0 and batch.marker is ControlRecordType.ABORT:
            open_ones = [other.txn_first_offset for other in producers.values() if other.txn_first_offset >= 0]
            stable = min(open_ones, default=batch.last_offset + 1)
            aborted.append(Aborted(batch.producer_id, first, batch.last_offset, stable, min([first, *open_ones])))
    return producers, aborted


def offset_by_timestamp(segments: Sequence[Segment], timestamp_ms: int, *, log_start_offset: int) -> int | None:
    """Return the first offset at or above the log start with at least that timestamp, in the first such segment."""
    for segment in segments:
        if max((batch.max_timestamp_ms for batch in segment.batches), default=-1) >= timestamp_ms:
            for batch in segment.batches:
                for found_ms, offset in batch.timestamps:
                    if found_ms >= timestamp_ms and offset >= log_start_offset:
                        return offset
            return None
    return None
