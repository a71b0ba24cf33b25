"""MemoryChangelogs: a ``ChangelogSource`` over lists, with the gaps, markers and failures that a test gives it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from tierd.errors import TierError, UnknownPartitionError
from tierd.log import Record
from tierd.model import IsolationLevel, Lineage, TopicPartition
from tierd.restore.changelog.changelog_errors import ChangelogRangeError, SourceUnavailableError
from tierd.restore.changelog.changelog_source import ChangelogIdentity, ChangelogRecords, ReadResult

TOPIC_ID = UUID(int=7)
RECORD_BYTES = 100


@dataclass
class MemoryChangelog:
    """One changelog: single-record batches by offset, where None is a marker or an aborted record."""

    batches: dict[int, Record | None] = field(default_factory=dict)
    earliest: int = 0
    end: int = 0
    stable: int | None = None  # last stable offset; None: the end
    lineage: Lineage = field(default_factory=Lineage)
    topic_id: UUID | None = TOPIC_ID
    delete_retention_ms: int | None = None


class MemoryChangelogs:
    """Changelogs of a test.

    Attributes:
        committed: committed offsets, whatever the group.
        failures: for the name of a method the errors of its next calls.
        reads: (partition, offset) of every read, in order.
        reads_at_once: largest number of reads that ran at the same time.
    """

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, MemoryChangelog] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.failures: dict[str, list[TierError]] = {}
        self.reads: list[tuple[TopicPartition, int]] = []
        self.calls: Counter[str] = Counter()

    def add(
        self,
        partition: TopicPartition,
        values: Iterable[tuple[int, bytes | None, bytes | None]],
        *,
        earliest: int = 0,
        end: int | None = None,
    ) -> MemoryChangelog:
        """Add a changelog of (offset, key, value); ``end`` is behind the last record unless it is given."""
        batches: dict[int, Record | None] = {
            offset: Record(offset, 1000 + offset, "CreateTime", key, value) for offset, key, value in values
        }
        last = max(batches, default=earliest - 1)
        log = MemoryChangelog(batches=batches, earliest=earliest, end=last + 1 if end is None else end)
        self.logs[partition] = log
        return log

    def fail(self, method: str, *errors: TierError) -> None:
        """Let the next calls of a method fail."""
        self.failures.setdefault(method, []).extend(errors)

    def time_out(self, method: str, times: int = 1) -> None:
        """Let the next calls of a method time out."""
        self.fail(method, *(SourceUnavailableError(f"{method} timed out") for _ in range(times)))

    async def list_partitions(self) -> frozenset[TopicPartition]:
        self._called("list_partitions")
        return frozenset(self.logs)

    async def identity(self, partition: TopicPartition) -> ChangelogIdentity:
        self._called("identity")
        log = self._log(partition)
        return ChangelogIdentity(
            topic_id=log.topic_id, lineage=log.lineage, delete_retention_ms=log.delete_retention_ms
        )

    async def earliest_offset(self, partition: TopicPartition) -> int:
        self._called("earliest_offset")
        return self._log(partition).earliest

    async def end_offset(self, partition: TopicPartition, isolation: IsolationLevel) -> int:
        self._called("end_offset")
        log = self._log(partition)
        if isolation is IsolationLevel.READ_COMMITTED and log.stable is not None:
            return log.stable
        return log.end

    async def committed_offset(self, group: str, partition: TopicPartition) -> int | None:
        self._called("committed_offset")
        self._log(partition)
        return self.committed.get(partition) if group else None

    async def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        is_encoded: bool = False,
    ) -> ReadResult:
        self._called("read")
        self.reads.append((partition, offset))
        log = self._log(partition)
        if not log.earliest <= offset <= log.end:
            raise ChangelogRangeError(partition, offset=offset, earliest_offset=log.earliest, end_offset=log.end)
        limit = await self.end_offset(partition, isolation)
        offsets = [each for each in sorted(log.batches) if offset <= each < limit]
        taken = offsets[: max(max_bytes // RECORD_BYTES, 1)]
        at_end = len(taken) == len(offsets)
        records = [record for each in taken if (record := log.batches[each]) is not None]
        next_offset = max(offset, limit) if at_end else taken[-1] + 1
        return ReadResult(
            records=ChangelogRecords.of(records),
            next_offset=next_offset,
            size_bytes=RECORD_BYTES * len(taken),
            remote_bytes=0,
            at_end=at_end,
        )

    def _log(self, partition: TopicPartition) -> MemoryChangelog:
        if partition not in self.logs:
            raise UnknownPartitionError(f"{partition} is unknown")
        return self.logs[partition]

    def _called(self, method: str) -> None:
        self.calls[method] += 1
        if errors := self.failures.get(method):
            raise errors.pop(0)
