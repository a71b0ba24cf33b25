"""GroupCommits: committed offsets of one partition of ``__consumer_offsets``, as a broker that loads it has them.

A commit of a transaction counts once its COMMIT marker is read, and takes the place of a commit of the same key only
if its own record is the later one (Kafka: OffsetMetadataManager.replay, replayEndTransactionMarker). A tombstone
removes the commits of its key, those of open transactions included.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from tierd.log import ControlRecordType, RecordBatch
from tierd.model import TopicPartition
from tierd.restore.catalogue.catalogue_objects import CommittedPosition
from tierd.restore.catalogue.offsets_codec import (
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetsRecordError,
    decode_commit,
    decode_key,
)


class _Commit(NamedTuple):
    """Committed offset, with the offset of its record."""

    record_offset: int
    value: OffsetCommitValue


@dataclass(slots=True)
class SkippedRecords:
    """Count of records that were not understood, with the last problem; empty without one."""

    count: int = 0
    problem: str = ""

    def note(self, problem: str) -> None:
        """Count one record."""
        self.count += 1
        self.problem = problem


class GroupCommits:
    """Committed offsets, fed with the batches of one partition in their order, each once.

    Attributes:
        next_offset: first offset that was not read yet.
        skipped: records that were not understood; the broker would not load them either.
    """

    def __init__(self) -> None:
        self.next_offset = 0
        self.skipped = SkippedRecords()
        self._commits: dict[OffsetCommitKey, _Commit] = {}
        self._open: defaultdict[int, dict[OffsetCommitKey, _Commit]] = defaultdict(dict)

    def __len__(self) -> int:
        """Return the number of commits in memory, those of open transactions included."""
        return len(self._commits) + sum(map(len, self._open.values()))

    def apply(self, batch: RecordBatch) -> None:
        """Take in the records of the next batch.

        Raises:
            CorruptRecordError: the records cannot be decoded.
        """
        if batch.is_control:
            self._end_transaction(batch.producer_id, batch.control_type())
        else:
            target = self._open[batch.producer_id] if batch.is_transactional else self._commits
            for record in batch.records():
                try:
                    self._take(target, record.offset, record.key, record.value)
                except OffsetsRecordError as error:
                    self.skipped.note(f"offset {record.offset}: {error}")
        self.next_offset = batch.last_offset + 1

    def positions(self, *, now_ms: int) -> dict[str, dict[TopicPartition, CommittedPosition]]:
        """Return the committed offsets by group; those that have expired by themselves are left out."""
        groups: dict[str, dict[TopicPartition, CommittedPosition]] = {}
        for key, (_, value) in self._commits.items():
            if value.expire_ms is None or value.expire_ms > now_ms:
                groups.setdefault(key.group, {})[key.partition] = CommittedPosition(
                    offset=value.offset,
                    leader_epoch=value.leader_epoch,
                    metadata=value.metadata,
                    committed_ms=value.committed_ms,
                    topic_id=value.topic_id,
                )
        return groups

    def _take(
        self, target: dict[OffsetCommitKey, _Commit], offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        decoded = decode_key(key)
        if not isinstance(decoded, OffsetCommitKey):
            return
        if value is not None:
            target[decoded] = _Commit(offset, decode_commit(value))
            return
        self._commits.pop(decoded, None)
        for commits in self._open.values():
            commits.pop(decoded, None)

    def _end_transaction(self, producer_id: int, marker: ControlRecordType | None) -> None:
        commits = self._open.pop(producer_id, {})
        if marker is not ControlRecordType.COMMIT:
            return
        for key, commit in commits.items():
            known = self._commits.get(key)
            if known is None or known.record_offset < commit.record_offset:
                self._commits[key] = commit
