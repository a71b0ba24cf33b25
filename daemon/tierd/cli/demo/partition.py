"""DemoPartition: one partition directory, appended to, rolled and shortened as a broker does it."""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from tierd.cli.demo.files import ProducerEntry, decode_snapshot, encode_snapshot, replace_file
from tierd.errors import CorruptRecordError
from tierd.log import (
    Compression,
    ControlRecordType,
    NewRecord,
    Producer,
    RecordBatch,
    encode_batch,
    encode_end_marker,
    iter_batches,
)
from tierd.model import Lineage, uuid_to_text

INDEX_INTERVAL_BYTES = 4096
_EPOCHS = "leader-epoch-checkpoint"


class DemoPartition:
    """Owns one directory. Opening it continues where the last owner stopped, a torn tail included."""

    def __init__(self, directory: Path, *, topic_id: UUID, segment_bytes: int, local_segments: int) -> None:
        """``local_segments`` is how many rolled segments local retention keeps."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._local_segments = local_segments
        self._producers: dict[int, ProducerEntry] = {}
        self._doomed: list[Path] = []
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(directory / "partition.metadata", f"version: 0\ntopic_id: {uuid_to_text(topic_id)}")
        for leftover in directory.glob("*.deleted"):
            leftover.unlink()
        self._lineage = _read_lineage(directory / _EPOCHS)
        self._recover()
        self._begin_epoch()

    @property
    def next_offset(self) -> int:
        """Offset of the next record, exclusive end of the log."""
        return self._next_offset

    @property
    def log_start_offset(self) -> int:
        """First offset that is still local."""
        return self._bases()[0]

    @property
    def rolled_segments(self) -> int:
        """Segments that no record will be added to."""
        return len(self._bases()) - 1

    def in_transaction(self, producer_id: int) -> bool:
        """Whether the producer has a transaction open."""
        known = self._producers.get(producer_id)
        return known is not None and known.open_transaction_from >= 0

    def append(
        self, records: Sequence[NewRecord], *, codec: Compression = Compression.NONE, producer_id: int | None = None
    ) -> None:
        """Append one batch; with a ``producer_id`` it belongs to that producer's transaction, opened if need be."""
        producer = Producer()
        if producer_id is not None:
            known = self._producers.get(producer_id)
            sequence = known.last_sequence + 1 if known and known.last_offset >= 0 else 0
            producer = Producer(producer_id, 0, sequence)
        self._write(
            encode_batch(
                records,
                base_offset=self._next_offset,
                compression=codec,
                producer=producer,
                is_transactional=producer_id is not None,
                leader_epoch=self._epoch,
            )
        )

    def end_transaction(self, producer_id: int, marker: ControlRecordType, *, timestamp_ms: int) -> None:
        """Commit or abort the producer's transaction."""
        self._write(
            encode_end_marker(
                kind=marker,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=timestamp_ms,
                base_offset=self._next_offset,
                leader_epoch=self._epoch,
            )
        )

    def abort_open_transactions(self, *, timestamp_ms: int) -> None:
        """Abort what a killed writer left open, as the coordinator does after a timeout."""
        for entry in list(self._producers.values()):
            if entry.open_transaction_from >= 0:
                self.end_transaction(entry.producer_id, ControlRecordType.ABORT, timestamp_ms=timestamp_ms)

    def retain(self) -> None:
        """Unlink what was renamed last time, then rename the oldest segments beyond what is kept."""
        for path in self._doomed:
            path.unlink(missing_ok=True)
        self._doomed = []
        bases = self._bases()
        for base in bases[: max(0, len(bases) - 1 - self._local_segments)]:
            for path in sorted(self._directory.glob(f"{base:020d}.*")):
                self._doomed.append(path.rename(path.with_name(path.name + ".deleted")))
        if self._doomed:
            self._set_lineage(self._lineage.truncated_from_start(self.log_start_offset))

    def _write(self, batch: bytes) -> None:
        if self._position >= self._segment_bytes:
            self._roll()
        [whole] = _whole_batches(batch, position=self._position)
        _extend(self._file("log"), batch)
        self._apply(whole)

    def _roll(self) -> None:
        _extend(self._file("timeindex"), self._time_entry())
        snapshot = self._directory / f"{self._next_offset:020d}.snapshot"
        snapshot.write_bytes(encode_snapshot(self._producers.values()))
        self._begin_segment(self._next_offset)

    def _begin_segment(self, base_offset: int) -> None:
        """Start from an empty index; the log file stays as it is, if there is one."""
        self._base_offset = self._next_offset = base_offset
        self._position = self._unindexed_bytes = 0
        self._max_timestamp_ms = self._indexed_timestamp_ms = -1
        self._offset_of_max_timestamp = base_offset
        for suffix in ("index", "timeindex"):
            self._file(suffix).write_bytes(b"")
        self._file("log").touch()  # last: it is what says that there is a segment

    def _apply(self, batch: RecordBatch) -> None:
        """Bring indexes, producer state and the end of the log up to a batch that is in the file."""
        if batch.max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms, self._offset_of_max_timestamp = batch.max_timestamp_ms, batch.last_offset
        if self._unindexed_bytes > INDEX_INTERVAL_BYTES:
            entry = struct.pack(">ii", batch.last_offset - self._base_offset, batch.position)
            _extend(self._file("index"), entry)
            _extend(self._file("timeindex"), self._time_entry())
            self._unindexed_bytes = 0
        self._unindexed_bytes += batch.size_bytes
        self._position = batch.end_position
        self._next_offset = batch.last_offset + 1
        if batch.is_control:
            self._end(batch)
        elif batch.producer_id >= 0:
            self._begin_or_continue(batch)

    def _begin_or_continue(self, batch: RecordBatch) -> None:
        known = self._producers.get(batch.producer_id)
        opened = known.open_transaction_from if known and known.open_transaction_from >= 0 else batch.base_offset
        delta = batch.last_offset - batch.base_offset
        self._producers[batch.producer_id] = ProducerEntry(
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            last_sequence=batch.base_sequence + delta,
            last_offset=batch.last_offset,
            offset_delta=delta,
            timestamp_ms=batch.max_timestamp_ms,
            coordinator_epoch=known.coordinator_epoch if known else -1,
            open_transaction_from=opened if batch.is_transactional else -1,
        )

    def _end(self, batch: RecordBatch) -> None:
        known = self._producers[batch.producer_id]
        others = [e.open_transaction_from for e in self._producers.values() if e.producer_id != batch.producer_id]
        stable = min((offset for offset in others if offset >= 0), default=batch.last_offset + 1)
        if batch.control_type() is ControlRecordType.ABORT and known.open_transaction_from >= 0:
            aborted = struct.pack(
                ">hqqqq", 0, batch.producer_id, known.open_transaction_from, batch.last_offset, stable
            )
            _extend(self._file("txnindex"), aborted)
        self._producers[batch.producer_id] = ProducerEntry(
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            last_sequence=known.last_sequence,
            last_offset=known.last_offset,
            offset_delta=known.offset_delta,
            timestamp_ms=batch.max_timestamp_ms,
            coordinator_epoch=0,
            open_transaction_from=-1,
        )

    def _time_entry(self) -> bytes:
        if self._max_timestamp_ms <= self._indexed_timestamp_ms:
            return b""
        self._indexed_timestamp_ms = self._max_timestamp_ms
        return struct.pack(">qi", self._max_timestamp_ms, self._offset_of_max_timestamp - self._base_offset)

    def _recover(self) -> None:
        """Read the active segment again: its end, its indexes, its producers."""
        bases = self._bases()
        if not bases:
            self._begin_segment(0)
            return
        data = self._named(bases[-1], "log").read_bytes()
        snapshot = self._named(bases[-1], "snapshot")
        if snapshot.exists():
            self._producers = {entry.producer_id: entry for entry in decode_snapshot(snapshot.read_bytes())}
        self._named(bases[-1], "txnindex").unlink(missing_ok=True)
        whole = list(_whole_batches(data, position=0))
        end = whole[-1].end_position if whole else 0
        self._begin_segment(bases[-1])
        os.truncate(self._file("log"), end)
        for batch in whole:
            self._apply(batch)

    def _begin_epoch(self) -> None:
        """Every start is a new leader epoch, as for a broker that was restarted."""
        latest = self._lineage.latest
        self._epoch = latest.epoch + 1 if latest else 0
        self._set_lineage(self._lineage.assign(epoch=self._epoch, start_offset=self._next_offset))

    def _set_lineage(self, lineage: Lineage) -> None:
        self._lineage = lineage
        lines = [f"{entry.epoch} {entry.start_offset}\n" for entry in lineage.entries]
        replace_file(self._directory / _EPOCHS, f"0\n{len(lines)}\n{''.join(lines)}")

    def _bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("*.log"))

    def _file(self, suffix: str) -> Path:
        return self._named(self._base_offset, suffix)

    def _named(self, base_offset: int, suffix: str) -> Path:
        return self._directory / f"{base_offset:020d}.{suffix}"


def _whole_batches(data: bytes, *, position: int) -> Iterator[RecordBatch]:
    """The batches in ``data``, which begins at ``position`` of its segment, up to a torn one."""
    with suppress(CorruptRecordError):
        yield from iter_batches(data, name="demo", position=position)


def _extend(path: Path, data: bytes) -> None:
    if data:
        with path.open("ab") as file:
            file.write(data)


def _read_lineage(path: Path) -> Lineage:
    if not path.exists():
        return Lineage()
    pairs = (line.split() for line in path.read_text().splitlines()[2:])
    return Lineage.of((int(epoch), int(start)) for epoch, start in pairs)
