"""BrokerLog: a partition directory, written as a broker writes it. TailFollowing: a log that a test polls by hand."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from tests.log.batches import TOPIC_ID, plain
from tierd.log import PartitionDirectory, encode_lineage, encode_topic_id, file_name, identify_directory
from tierd.model import EpochEntry, Lineage


@dataclass(frozen=True)
class WrittenBatch:
    """One batch of the log."""

    base_offset: int
    last_offset: int
    data: bytes
    epoch: int


@dataclass
class WrittenSegment:
    """One segment, with the batches that its file has."""

    base_offset: int
    batches: list[WrittenBatch] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.batches)


class BrokerLog:
    """The broker's side of a log. ``history`` has every batch that was not cut off, also those that were cleaned."""

    def __init__(
        self, log_dir: Path, *, name: str = "orders-0", topic_id: UUID = TOPIC_ID, room_bytes: int = 0, start: int = 0
    ) -> None:
        self.path = log_dir / name
        self.path.mkdir(parents=True)
        self._room_bytes = room_bytes
        self._serial = 0
        self._half = b""
        self.epoch = 0
        self.lineage = Lineage()
        self.history: list[WrittenBatch] = []
        self.cleaned: set[int] = set()
        self.segments: list[WrittenSegment] = []
        self.next_offset = start
        (self.path / "partition.metadata").write_bytes(encode_topic_id(topic_id))
        self._write_lineage()
        self._begin_segment()

    @property
    def directory(self) -> PartitionDirectory:
        found = identify_directory(self.path)
        assert found is not None
        return found

    @property
    def active(self) -> Path:
        return self.log_of(self.segments[-1])

    def log_of(self, segment: WrittenSegment) -> Path:
        return self.path / file_name(segment.base_offset, ".log")

    # ---------------------------------------------------------------- what a broker does

    def append(self, count: int = 1, *, size: int = 10) -> WrittenBatch:
        batch = self._next_batch(count, size)
        self._write(batch.data)
        self._appended(batch)
        return batch

    def append_data(self, data: bytes, count: int) -> None:
        """Append a batch of the present epoch that a test has made for the log end."""
        self._write(data)
        self._appended(WrittenBatch(self.next_offset, self.next_offset + count - 1, data, self.epoch))

    def begin_append(self, part: float, *, size: int = 10) -> WrittenBatch:
        """Write the front of a batch only; ``finish_append`` writes the rest."""
        batch = self._next_batch(1, size)
        # Zeros at the end of a batch are there already in a preallocated file.
        cut = min(max(1, int(len(batch.data) * part)), len(batch.data.rstrip(b"\0")) - 1)
        self._write(batch.data[:cut])
        self._half = batch.data
        return batch

    def finish_append(self) -> None:
        self._write(self._half)
        self._appended(WrittenBatch(self.next_offset, self.next_offset, self._half, self.epoch))
        self._half = b""

    def roll(self) -> None:
        os.truncate(self.active, self.segments[-1].size_bytes)
        self._begin_segment()

    def begin_epoch(self) -> None:
        """Begin a leadership, as a new leader does; no record has its epoch yet."""
        self.epoch += 1
        self.lineage = self.lineage.assign(epoch=self.epoch, start_offset=self.next_offset)
        self._write_lineage()

    def truncate(self, index: int) -> None:
        """Cut the log back to its ``index``-th batch that is in a file, as a broker that follows a new leader."""
        kept = [batch for segment in self.segments for batch in segment.batches][:index]
        self.next_offset = kept[-1].last_offset + 1 if kept else self.segments[0].base_offset
        while len(self.segments) > 1 and self.segments[-1].base_offset > self.next_offset:
            self.log_of(self.segments.pop()).unlink()
        last = self.segments[-1]
        last.batches = [batch for batch in last.batches if batch.last_offset < self.next_offset]
        os.truncate(self.active, last.size_bytes)
        self.history = [batch for batch in self.history if batch.last_offset < self.next_offset]
        self.lineage = self.lineage.truncated_from_end(self.next_offset)
        self._half = b""
        self._write_lineage()

    def clean(self, keep_each: int = 2) -> None:
        """Compact the rolled segments into one, as a cleaner: a new file takes the name of the first one."""
        rolled = self.segments[:-1]
        if not rolled:
            return
        batches = [batch for segment in rolled for batch in segment.batches]
        kept = [batch for at, batch in enumerate(batches) if at % keep_each == 0]
        self.cleaned |= {batch.base_offset for batch in batches} - {batch.base_offset for batch in kept}
        target = self.log_of(rolled[0])
        swap = target.with_suffix(".log.swap")
        swap.with_suffix(".cleaned").write_bytes(b"".join(batch.data for batch in kept))
        swap.with_suffix(".cleaned").rename(swap)
        for segment in rolled:
            self._delete(segment)
        swap.rename(target)
        self.segments = [WrittenSegment(rolled[0].base_offset, kept), self.segments[-1]]

    def rewrite(self, segment: WrittenSegment, data: bytes) -> None:
        """Give a rolled segment a new file, as a cleaner does that takes records out of its batches."""
        target = self.log_of(segment)
        swap = target.with_suffix(".log.swap")
        swap.write_bytes(data)
        swap.rename(target)

    def delete_oldest(self) -> None:
        """Delete the oldest rolled segment, as retention does."""
        if len(self.segments) > 1:
            self._delete(self.segments.pop(0))

    def delete_records(self, before: int) -> None:
        """Raise the log start into a segment, as DeleteRecords does: the epochs begin there from now on."""
        self.lineage = self.lineage.truncated_from_start(before)
        self._write_lineage()

    def move_to(self, log_dir: Path) -> None:
        """Move the log to another log dir: a copy takes the name, and the former directory is deleted."""
        future = log_dir / f"{self.path.name}.{'0' * 32}-future"
        shutil.copytree(self.path, future)
        gone = self.path.with_name(f"{self.path.name}.{'1' * 32}-delete")
        self.path.rename(gone)
        self.path = future.rename(log_dir / self.path.name)
        shutil.rmtree(gone)

    def delete(self) -> None:
        """Delete the topic."""
        gone = self.path.rename(self.path.with_name(f"{self.path.name}.{'2' * 32}-delete"))
        shutil.rmtree(gone)

    # ---------------------------------------------------------------- files

    def _next_batch(self, count: int, size: int) -> WrittenBatch:
        if self.lineage.latest is None or self.lineage.latest.epoch < self.epoch:
            self.lineage = self.lineage.assign(epoch=self.epoch, start_offset=self.next_offset)
            self._write_lineage()
        self._serial += 1
        data = plain(self.next_offset, count, timestamp_ms=self._serial, size=size, epoch=self.epoch)
        return WrittenBatch(self.next_offset, self.next_offset + count - 1, data, self.epoch)

    def _write(self, data: bytes) -> None:
        with self.active.open("r+b") as file:
            file.seek(self.segments[-1].size_bytes)
            file.write(data)

    def _appended(self, batch: WrittenBatch) -> None:
        self.segments[-1].batches.append(batch)
        self.history.append(batch)
        self.next_offset = batch.last_offset + 1

    def _begin_segment(self) -> None:
        self._half = b""
        segment = WrittenSegment(self.next_offset)
        if self.segments and self.segments[-1].base_offset == segment.base_offset:
            return
        self.segments.append(segment)
        self.active.touch()
        os.truncate(self.active, self._room_bytes)

    def _delete(self, segment: WrittenSegment) -> None:
        log = self.log_of(segment)
        log.rename(log.with_suffix(".log.deleted")).unlink()

    def _write_lineage(self) -> None:
        file = self.path / "leader-epoch-checkpoint"
        temporary = file.with_suffix(".tmp")
        temporary.write_bytes(encode_lineage(self.lineage))
        temporary.rename(file)


def epochs(*entries: tuple[int, int]) -> Lineage:
    return Lineage(tuple(EpochEntry(*entry) for entry in entries))
