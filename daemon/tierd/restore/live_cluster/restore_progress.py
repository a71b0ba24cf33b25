"""RestoreProgress: the durable progress of a restore into a live cluster: its journal, and the offset map beside it.

::

    {"step":"create","topic":"orders"}                           the topic did not exist; CreateTopics follows
    {"step":"not_created","topic":"orders"}                      another client had created it meanwhile
    {"step":"begin","partition":"orders-0","end_offset":…,"producer_id":…,"producer_epoch":…,"target_offset":…,…}
    {"step":"sent","partition":"orders-0","next_offset":…,"sequence":…,"target_offset":…,"map_bytes":…,"at_ms":…}
    {"step":"done","partition":"orders-0"}
    {"step":"configured","topic":"orders"}                       the settings of the time of the restore are gone

Every batch is sent after the line ``begin`` of its partition, which names its producer. A line ``sent`` says up to
where the leader has acknowledged all. Batches of that producer with higher sequence numbers may be in the target; a
resumed run finds them there, from ``target_offset`` on. The lines of the offset map are durable before ``sent`` counts
them.
"""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID

from tierd.control import ProducerIdentity
from tierd.errors import StateDirError
from tierd.files import open_regular
from tierd.model import TopicPartition, uuid_from_text, uuid_to_text
from tierd.restore.journal import Journal
from tierd.restore.live_cluster.offset_map import MappedRange, header_line, range_lines
from tierd.tasks import in_thread

_JOURNAL_FILE: Final = "journal.jsonl"
OFFSET_MAP_FILE: Final = "offset-map.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """Progress of one partition.

    Attributes:
        name: in the source.
        end_offset: exclusive end of the offsets that are restored.
        producer: of the partition's batches.
        max_batch_bytes: larger batches are sent in parts.
        next_offset: in the source; everything below is acknowledged.
        sequence: of the next record.
        target_offset: in the target; batches that are not counted here lie at or above it. Where a batch was
            acknowledged it is the first offset of the last one, which must still be there.
        begun_ms: wall clock of the line ``begin``.
        at_ms: wall clock of this state.
        topic_id: of the target's topic; None in a journal that does not have it.
        is_done: everything is in the target.
    """

    name: TopicPartition
    end_offset: int
    producer: ProducerIdentity
    max_batch_bytes: int
    next_offset: int
    sequence: int
    target_offset: int
    begun_ms: int
    at_ms: int
    topic_id: UUID | None = None
    is_done: bool = False
    has_sent: bool = False


class RestoreProgress:
    """Progress of all partitions, on disk. One process has it open at a time."""

    def __init__(self, journal: Journal, map_fd: int, map_path: Path) -> None:
        """Take over the open files; call ``open`` instead."""
        self.map_path = map_path
        self._journal = journal
        self._map_fd = map_fd
        self._map_bytes = 0
        self._lock = asyncio.Lock()
        self._partitions: dict[TopicPartition, PartitionProgress] = {}
        self._created: set[str] = set()
        self._configured: set[str] = set()

    @classmethod
    def open(cls, directory: Path, job: Mapping[str, Any], *, source_cluster: str, target_cluster: str) -> Self:
        """Open the progress of ``job`` in a directory, or begin it. Blocking.

        Raises:
            AlreadyRunningError: another process has it open.
            RefusedError: the directory has the journal of another job.
            StateDirError: it cannot be read or written, or is damaged.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(directory, error) from error
        journal = Journal.open(directory / _JOURNAL_FILE, job)
        try:
            path = directory / OFFSET_MAP_FILE
            header = header_line(source_cluster=source_cluster, target_cluster=target_cluster)
            try:
                fd = open_regular(path, os.O_RDWR | os.O_CREAT)
            except OSError as error:
                raise _unusable(path, error) from error
            progress = cls(journal, fd, path)
            try:
                progress._replay(header)
            except BaseException:
                os.close(fd)
                raise
        except BaseException:
            journal.close()
            raise
        return progress

    def partition(self, name: TopicPartition) -> PartitionProgress | None:
        """Return the progress of a partition; None before ``begin``."""
        return self._partitions.get(name)

    def may_have_created(self, topic: str) -> bool:
        """Return True if this job has tried to create the topic."""
        return topic in self._created

    def is_configured(self, topic: str) -> bool:
        """Return True if the settings of the restored topic are final."""
        return topic in self._configured

    async def create(self, topic: str) -> None:
        """Note that the topic does not exist and is created next."""
        await self._append({"step": "create", "topic": topic})
        self._created.add(topic)

    async def not_created(self, topic: str) -> None:
        """Note that another client has created the topic."""
        await self._append({"step": "not_created", "topic": topic})
        self._created.discard(topic)

    async def configured(self, topic: str) -> None:
        """Note that the settings of the topic are final."""
        await self._append({"step": "configured", "topic": topic})
        self._configured.add(topic)

    async def begin(self, progress: PartitionProgress) -> None:
        """Note the producer of a partition, before its first batch is sent."""
        step = {
            "step": "begin",
            "partition": str(progress.name),
            "end_offset": progress.end_offset,
            "producer_id": progress.producer.id,
            "producer_epoch": progress.producer.epoch,
            "max_batch_bytes": progress.max_batch_bytes,
            "next_offset": progress.next_offset,
            "target_offset": progress.target_offset,
            "at_ms": progress.begun_ms,
            "topic_id": None if progress.topic_id is None else uuid_to_text(progress.topic_id),
        }
        await self._append(step)
        self._partitions[progress.name] = progress

    async def sent(self, progress: PartitionProgress, target: TopicPartition, ranges: Sequence[MappedRange]) -> None:
        """Note that all below ``progress.next_offset`` is in the target, at ``ranges`` since the last call."""
        async with self._lock:
            lines = range_lines(progress.name, target, ranges)
            await in_thread(self._note_sent, progress, lines)  # the next write must come behind it

    async def done(self, name: TopicPartition) -> None:
        """Note that a partition is complete."""
        await self._append({"step": "done", "partition": str(name)})
        self._partitions[name] = replace(self._partitions[name], is_done=True)

    def close(self) -> None:
        """Close the files."""
        os.close(self._map_fd)
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _append(self, step: Mapping[str, Any]) -> None:
        async with self._lock:
            await in_thread(self._journal.append, step)

    def _note_sent(self, progress: PartitionProgress, lines: bytes) -> None:
        """Write the map, then the journal that counts its lines; neither, if one fails. Blocking."""
        before = self._map_bytes
        self._append_map(lines)
        step = {
            "step": "sent",
            "partition": str(progress.name),
            "next_offset": progress.next_offset,
            "sequence": progress.sequence,
            "target_offset": progress.target_offset,
            "map_bytes": self._map_bytes,
            "at_ms": progress.at_ms,
        }
        try:
            self._journal.append(step)
        except BaseException:
            self._cut_map(before)  # the step of another partition must not count the lines
            raise
        self._partitions[progress.name] = progress

    def _append_map(self, lines: bytes) -> None:
        before = self._map_bytes
        try:
            data = memoryview(lines)
            at = before
            while data:
                written = os.pwrite(self._map_fd, data, at)
                data, at = data[written:], at + written
            os.fdatasync(self._map_fd)
        except OSError as error:
            self._cut_map(before)
            raise _unusable(self.map_path, error) from error
        self._map_bytes += len(lines)

    def _cut_map(self, size_bytes: int) -> None:
        """Take lines back that no step counts; the next ones are written in their place in any case."""
        self._map_bytes = size_bytes
        with contextlib.suppress(OSError):
            os.ftruncate(self._map_fd, size_bytes)

    def _replay(self, header: bytes) -> None:
        """Take the steps of earlier runs, and cut lines of the map that no step counts."""
        for step in self._journal.steps:
            match step:
                case {"step": "create", "topic": topic}:
                    self._created.add(topic)
                case {"step": "not_created", "topic": topic}:
                    self._created.discard(topic)
                case {"step": "configured", "topic": topic}:
                    self._configured.add(topic)
                case {"step": "begin", "partition": text}:
                    name = TopicPartition.parse(text)
                    self._partitions[name] = PartitionProgress(
                        name=name,
                        end_offset=step["end_offset"],
                        producer=ProducerIdentity(step["producer_id"], step["producer_epoch"]),
                        max_batch_bytes=step["max_batch_bytes"],
                        next_offset=step["next_offset"],
                        sequence=0,
                        target_offset=step["target_offset"],
                        begun_ms=step["at_ms"],
                        at_ms=step["at_ms"],
                        topic_id=None if step.get("topic_id") is None else uuid_from_text(step["topic_id"]),
                    )
                case {"step": "sent", "partition": text}:
                    name = TopicPartition.parse(text)
                    self._partitions[name] = replace(
                        self._partitions[name],
                        next_offset=step["next_offset"],
                        sequence=step["sequence"],
                        target_offset=step["target_offset"],
                        at_ms=step["at_ms"],
                        has_sent=True,
                    )
                    self._map_bytes = step["map_bytes"]
                case {"step": "done", "partition": text}:
                    name = TopicPartition.parse(text)
                    self._partitions[name] = replace(self._partitions[name], is_done=True)
        try:
            if self._map_bytes:
                if os.fstat(self._map_fd).st_size < self._map_bytes:
                    raise StateDirError(
                        f"{self.map_path} is shorter than the journal says",
                        remedy="take the file from a backup, or begin the restore again with another journal",
                    )
                os.ftruncate(self._map_fd, self._map_bytes)
            else:
                os.ftruncate(self._map_fd, 0)
                self._append_map(header)
        except OSError as error:
            raise _unusable(self.map_path, error) from error


def _unusable(path: Path, error: OSError) -> StateDirError:
    return StateDirError(f"{path}: {error.strerror}", remedy="make room or mend the disk, then run the restore again")
