"""A leader's log, the tier that it is copied to, and a standby's log, all on disk, changed step by step."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from tests.log.cleaning.cleaners import clean
from tests.log.logs import NOW_MS, lead, lead_marker, open_log
from tests.tiering.setups import Tier, partition_of
from tests.tiering.standbys.compared import findings_of
from tierd.log import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    LogConfig,
    NewRecord,
    Producer,
    RecordBatch,
    UnifiedLog,
    encode_batch,
    encode_offset_checkpoint,
    iter_batches,
)
from tierd.model import TopicIdPartition
from tierd.tiering import Finding, Severity

TOPIC_ID = UUID(int=7)
COMPACT = frozenset({"compact"})
DELETE = frozenset({"delete"})
STEP_MS = 10_000

Row = tuple[bytes | None, bytes | None]


def keyed(*keys: str) -> list[Row]:
    """Return records of these keys; a key in capitals is a tombstone of the small one."""
    return [(key.lower().encode(), None if key.isupper() else b"value of " + key.encode()) for key in keys]


class Replicated:
    """Partition ``orders-0``; the two logs roll at different sizes.

    Attributes:
        leader: the leader's log.
        standby: the standby's log.
        now_ms: time, which each step moves on.
        has_lost_cleaned: records are lost because of which a cleaner has removed earlier ones.
    """

    def __init__(self, folder: Path, *, policy: frozenset[str] = DELETE) -> None:
        config = partial(
            LogConfig, cleanup_policy=policy, retention_ms=-1, delete_retention_ms=STEP_MS, file_delete_delay_ms=0
        )
        self.leader = _log(folder / "leader", config(segment_bytes=400, index_interval_bytes=0))
        self.standby = _log(folder / "standby", config(segment_bytes=700, index_interval_bytes=100))
        self.now_ms = NOW_MS
        self.policy = policy
        self._epoch = 0
        self._transactions = 0
        self._copied_end = 0
        self._diverged_at: int | None = None
        self._cleaned: dict[str, int] = {}
        self.has_lost_cleaned = False
        self.leader.assign_leader_epoch(0, 0)
        self.session = Tier(folder, [self.leader.directory.parent]).session()

    # ------------------------------------------------------------ leader and tier

    @property
    def partition(self) -> TopicIdPartition:
        return partition_of(self.leader.directory)

    @property
    def tier_end(self) -> int:
        """Return the exclusive end of the tier."""
        return self._copied_end

    @property
    def cleaned_on_leader(self) -> int:
        """Return the exclusive end of what the leader's cleaner has cleaned."""
        return self._cleaned.get("leader", 0)

    def append(self, rows: Sequence[Row]) -> None:
        """Append a batch of a producer without transactions."""
        lead(self.leader, _batch(rows, self.now_ms), epoch=self._epoch, now_ms=self.now_ms)
        self._committed()

    def transact(self, rows: Sequence[Row], *, commit: bool) -> None:
        """Append a transaction of one batch, and its marker."""
        self._transactions += 1
        producer = Producer(self._transactions, 0, 0)
        data = _batch(rows, self.now_ms, producer)
        lead(self.leader, data, epoch=self._epoch, now_ms=self.now_ms)
        lead_marker(self.leader, producer.id, commit=commit, epoch=self._epoch, now_ms=self.now_ms)
        self._committed()

    def begin_epoch(self) -> None:
        """Elect the same leader again."""
        self._epoch += 1
        self.leader.assign_leader_epoch(self._epoch, self.leader.log_end_offset)

    def lose_end(self, records: int) -> None:
        """Elect a leader that lacks the end of the log, but has all that is in the tier."""
        end = max(self.leader.log_end_offset - records, self.tier_end, self.leader.log_start_offset)
        ends = {batch.base_offset for batch in _batches(self.leader, self.leader.log_start_offset)}
        end = min(each for each in (*ends, self.leader.log_end_offset) if each >= end)
        self._truncate("leader", self.leader, end)
        if end < self.standby.log_end_offset:
            self._diverged_at = end if self._diverged_at is None else min(end, self._diverged_at)
        self.begin_epoch()
        self._committed()

    async def copy(self) -> None:
        """Roll the leader's log, and copy what has rolled."""
        self.leader.roll(now_ms=self.now_ms)
        self._write_checkpoints()
        await self.session.copy_once()
        self._copied_end = max((end + 1 for _, end in self.session.finished(self.partition)), default=0)

    def clean_leader(self) -> None:
        """Let the leader's log cleaner run."""
        self._clean("leader", self.leader)

    def retain_on_leader(self, records: int) -> None:
        """Delete records at the log start of the leader, in the local log only."""
        self._retain(self.leader, min(self.leader.log_start_offset + records, self.tier_end))

    # ------------------------------------------------------------ standby

    def follow(self, batches: int = 1 << 20) -> None:
        """Let the standby truncate what its leader lost, and fetch up to so many batches."""
        self.truncate()
        standby, start = self.standby, self.leader.log_start_offset
        if standby.log_end_offset < start:
            standby.truncate_fully_and_start_at(start, now_ms=self.now_ms)
        for batch in _batches(self.leader, standby.log_end_offset)[:batches]:
            if batch.base_offset < standby.log_end_offset:  # the log start of the leader lies inside the batch
                standby.truncate_fully_and_start_at(batch.base_offset, now_ms=self.now_ms)
            standby.append_as_follower(bytes(batch.data), now_ms=self.now_ms)
        standby.update_high_watermark(self.leader.high_watermark)
        standby.increment_log_start_offset(min(start, standby.high_watermark), reason="the leader's")
        self._write_checkpoints()

    def truncate(self) -> None:
        """Let the standby truncate what its leader lost."""
        if self._diverged_at is not None:
            self._truncate("standby", self.standby, self._diverged_at)
            self._diverged_at = None
        self._write_checkpoints()

    def clean_standby(self) -> None:
        """Let the standby's log cleaner run."""
        self._clean("standby", self.standby)

    def retain_on_standby(self, records: int) -> None:
        """Delete records at the standby's log start."""
        self._retain(self.standby, self.standby.log_start_offset + records)

    # ------------------------------------------------------------ audit

    async def verify(self, *, deep: bool = True, is_compacted: bool | None = None) -> list[Finding]:
        """Return the findings and notes of a comparison."""
        self._write_checkpoints()
        return await findings_of(self.session, self.standby.directory, is_compacted=is_compacted, deep=deep)

    async def faults(self, *, deep: bool = True, is_compacted: bool | None = None) -> list[str]:
        """Return the kinds of the findings that are no notes."""
        found = await self.verify(deep=deep, is_compacted=is_compacted)
        return [each.kind for each in found if each.severity is not Severity.NOTE]

    # ------------------------------------------------------------ files

    def _committed(self) -> None:
        self.leader.update_high_watermark(self.leader.log_end_offset)

    def _truncate(self, name: str, log: UnifiedLog, end: int) -> None:
        if self._cleaned.get(name, 0) > end:
            self._cleaned[name] = end
            self.has_lost_cleaned = True
        log.truncate_to(end, now_ms=self.now_ms)

    def _clean(self, name: str, log: UnifiedLog) -> None:
        self.now_ms += STEP_MS
        log.roll(now_ms=self.now_ms)
        self._cleaned[name] = clean(log, cleaned_to=self._cleaned.get(name), now_ms=self.now_ms)
        log.housekeep(self.now_ms)
        self._write_checkpoints()

    def _retain(self, log: UnifiedLog, offset: int) -> None:
        self.now_ms += STEP_MS
        log.increment_log_start_offset(min(offset, log.high_watermark), reason="test")
        log.delete_old_segments(self.now_ms)
        log.housekeep(self.now_ms)
        self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        name = self.leader.topic_partition
        for log in (self.leader, self.standby):
            log_dir = log.directory.parent
            offsets = {
                REPLICATION_OFFSET_CHECKPOINT: log.high_watermark,
                LOG_START_OFFSET_CHECKPOINT: log.log_start_offset,
                CLEANER_OFFSET_CHECKPOINT: self._cleaned.get(log_dir.name, 0),
            }
            for file, offset in offsets.items():
                (log_dir / file).write_bytes(encode_offset_checkpoint({name: offset} if offset else {}))


def _log(log_dir: Path, config: LogConfig) -> UnifiedLog:
    log_dir.mkdir(parents=True)
    log = open_log(log_dir, config=config)
    log.assign_topic_id(TOPIC_ID)
    log.housekeep(NOW_MS)
    return log


def _batch(rows: Sequence[Row], now_ms: int, producer: Producer | None = None) -> bytes:
    return encode_batch(
        [NewRecord(key, value, now_ms) for key, value in rows],
        base_offset=0,
        producer=producer or Producer(),
        is_transactional=producer is not None,
    )


def _batches(log: UnifiedLog, start: int) -> list[RecordBatch]:
    found: list[RecordBatch] = []
    offset = max(start, log.log_start_offset)
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, max_bytes=1 << 20, isolation=None).records)
        taken = [each for each in iter_batches(data, name="log") if each.last_offset >= start]
        if not taken:
            break
        found += taken
        offset = taken[-1].last_offset + 1
    return found
