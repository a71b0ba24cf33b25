"""Driver of the rebuild: the metadata of a partition from the objects in the bucket.

::

    object a 0-99 [leader=5] [epochs=0@0] [replaces=b,c] [tombstone=retention_time]
                                 a segment with a manifest, in the order of their copies; leader: epoch of the copy
    log-start 100 leader=6       the record of the log start, and the leader epoch of its writer
    rebuild                      metadata afterwards, and conflicts
    find 50 epoch=0              the segment that a reader of that offset gets
"""

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

from tests.fakes.remote_segments import PARTITION, segment
from tests.transcripts.transcript import Command
from tests.transcripts.units import NOW_MS, parse_epochs, parse_offsets, show_duration
from tierd.metadata import BucketLogStart, BucketSegment, PartitionView, rebuild_partition
from tierd.model import SoftDelete, uuid_to_text

_GRACE_MS = 86_400_000
_MINUTE_MS = 60_000


class Rebuild:
    """Objects of one partition, and the metadata of the latest rebuild."""

    def __init__(self) -> None:
        """Begin with an empty bucket."""
        self._found: list[BucketSegment] = []
        self._ids: dict[str, UUID] = {}
        self._log_start: BucketLogStart | None = None
        self._view = PartitionView(PARTITION)

    def run(self, command: Command) -> Iterator[str]:
        """Carry out a command; ``rebuild`` and ``find`` yield the decisions."""
        match command.name:
            case "object":
                self._found.append(self._object(command))
            case "log-start":
                self._log_start = BucketLogStart(
                    log_start_offset=int(command.word()), leader_epoch=int(command.option("leader")), broker_id=1
                )
            case "rebuild":
                yield from self._rebuild()
            case "find":
                metadata = self._view.segment_for(int(command.option("epoch", "0")), int(command.word()))
                yield "no segment" if metadata is None else f"segment {self._named(uuid_to_text(metadata.segment.id))}"
            case _:
                raise command.unknown()

    def _object(self, command: Command) -> BucketSegment:
        segment_id, offsets = self._id_of(command.word()), parse_offsets(command.word())
        starts = {entry.epoch: entry.start_offset for entry in parse_epochs(command.option("epochs", "")).entries}
        leader, reason = int(command.option("leader", "5")), command.option("tombstone", "")
        begun_ms = NOW_MS + len(self._found) * _MINUTE_MS
        metadata = segment(offsets.start, offsets.end, starts or 0, segment_id=segment_id, leader_epoch=leader)
        return BucketSegment(
            metadata=replace(metadata, event_timestamp_ms=begun_ms),
            replaces=frozenset(self._id_of(name) for name in command.option("replaces", "").split(",") if name),
            soft_delete=SoftDelete(reason, begun_ms) if reason else None,
            deleted_ms=begun_ms if reason else -1,
            deleted_by=1 if reason else -1,
        )

    def _rebuild(self) -> Iterator[str]:
        now_ms = NOW_MS + len(self._found) * _MINUTE_MS
        replaced = SoftDelete.replaced(delete_after_ms=now_ms + _GRACE_MS)
        rebuilt = rebuild_partition(
            PARTITION, self._found, session_id=UUID(int=9), replaced=replaced, log_start=self._log_start
        )
        self._view = rebuilt.view
        for metadata in sorted(self._view.list(), key=lambda m: (m.start_offset, m.end_offset)):
            soft = metadata.soft_delete
            why = f", {soft.reason}, objects stay for {show_duration(soft.delete_after_ms - now_ms)}" if soft else ""
            name = self._named(uuid_to_text(metadata.segment.id))
            yield f"{name} {metadata.start_offset}-{metadata.end_offset}: {metadata.state.name}{why}"
        if self._view.claim is not None:
            start = self._view.log_start_offset
            yield f"log start {'unknown' if start is None else start}, leader epoch {self._view.claim.leader_epoch}"
        for problem in rebuilt.problems:
            yield self._named(f"{problem.severity.value}, {problem.kind}: {problem.where}: {problem.what}")

    def _id_of(self, name: str) -> UUID:
        return self._ids.setdefault(name, UUID(int=len(self._ids) + 1))

    def _named(self, text: str) -> str:
        """Return ``text`` with the names of segments in place of their ids."""
        for name, segment_id in self._ids.items():
            text = text.replace(uuid_to_text(segment_id), name)
        return text
