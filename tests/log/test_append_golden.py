"""Append equality: the batches of a real broker's directories, appended again, give the broker's files to the byte.

Every partition of a broker's log dir is written anew by one log manager, batch by batch, once as a leader (offsets,
epochs and timestamps assigned again) and once as a follower. Clean stops in between are repeated where the broker made
them: a leftover snapshot inside a segment shows where (``RESTARTED_AT``), for a stop begins the counting of
``index.interval.bytes`` anew. The test compares every name and every byte of every file, except

- snapshots, which are sets of producers, in no order, and checkpoints, whose lines have no order;
- a snapshot that such a stop left inside a segment, which may have been removed by a later start.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.golden.unpack import GoldenCase, golden_cases
from tests.log.logs import clean_up, housekeep
from tierd.log import RecordBatch, file_name, iter_batches, read_lineage, read_offset_checkpoint, read_producer_snapshot
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.files.checkpoints import read_topic_id
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import encode_batch
from tierd.log.records.batch_restamp import set_last_offset, set_max_timestamp
from tierd.log.records.log_config import LogConfig, TimestampType
from tierd.log.records.new_record import NewRecord
from tierd.model import TopicPartition

STARTED_MS = 1_795_252_762_000
DELETE_DELAY_S = 1.0
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")
INTERNAL = frozenset({"__cluster_metadata", "__consumer_offsets", "__transaction_state"})

RESTARTED_AT: dict[tuple[str, str], tuple[int, ...]] = {
    ("kafka-3.9.2/epochs/node1/logdir", "epochs-0"): (504,),
    ("kafka-3.9.2/epochs/node2/logdir", "epochs-0"): (168, 392),
}


@dataclass(frozen=True, slots=True)
class Replica:
    """One partition directory of a broker."""

    case: GoldenCase
    logdir: str

    @property
    def id(self) -> str:
        return f"{self.logdir.replace('/', '-')}-{self.case.partition}"

    @property
    def restarted_at(self) -> tuple[int, ...]:
        return RESTARTED_AT.get((self.logdir, self.case.partition), ())


REPLICAS = tuple(
    Replica(case, logdir)
    for case in golden_cases("clean", "epochs")
    if case.partition.rpartition("-")[0] not in INTERNAL
    for logdir in case.logdirs
)
LOG_DIRS = tuple(dict.fromkeys(replica.logdir for replica in REPLICAS))


class Writer:
    """Writer of one broker's log dir, from its batches."""

    def __init__(self, log_dir: Path, source: Path, replicas: list[Replica], *, as_leader: bool) -> None:
        self.log_dir = log_dir
        self.source = source
        self.as_leader = as_leader
        self.replicas = replicas
        self.clock = FakeClock(now_ms=STARTED_MS)

    def write(self) -> None:
        restarts = sorted({offset for replica in self.replicas for offset in replica.restarted_at})
        for stop_at in [*restarts, None]:
            with LogManager([self.log_dir], LogManagerSettings(config_for=self.config_of, clock=self.clock)) as manager:
                for replica in self.replicas:
                    if stop_at is None or stop_at in replica.restarted_at:
                        self.append_until(self.log_of(manager, replica), replica, stop_at)
                clean_up(manager, now_ms=self.clock.now_ms())
                self.clock.advance(DELETE_DELAY_S)
                housekeep(manager, now_ms=self.clock.now_ms())

    def log_of(self, manager: LogManager, replica: Replica) -> UnifiedLog:
        partition = TopicPartition.parse(replica.case.partition)
        log = manager.get(partition)
        if log is None:
            log = manager.get_or_create(partition, topic_id=read_topic_id(self.source / replica.case.partition))
            self.begin(log, replica)
        return log

    def begin(self, log: UnifiedLog, replica: Replica) -> None:
        """Give the log the offsets below its first segment, if a snapshot shows that there were some."""
        directory = self.source / replica.case.partition
        first = first_base(directory)
        if not first:
            return
        filler = encode_batch([NewRecord(None, b"deleted long ago", 0)], base_offset=first - 1, leader_epoch=0)
        log.truncate_fully_and_start_at(first - 1, now_ms=STARTED_MS)
        log.append_as_follower(filler, now_ms=STARTED_MS)
        log.roll(now_ms=STARTED_MS)
        log.update_high_watermark(first)
        log.delete_records(first)

    def append_until(self, log: UnifiedLog, replica: Replica, end: int | None) -> None:
        for batch in batches_of(self.source / replica.case.partition):
            if batch.base_offset < log.log_end_offset or (end is not None and batch.base_offset >= end):
                continue
            if self.as_leader:
                log.append_as_leader(
                    as_produced(batch),
                    leader_epoch=batch.partition_leader_epoch,
                    now_ms=batch.max_timestamp_ms
                    if batch.timestamp_type == TimestampType.LOG_APPEND_TIME.value
                    else STARTED_MS,
                    origin=AppendOrigin.COORDINATOR if batch.is_control else AppendOrigin.CLIENT,
                )
            else:
                log.append_as_follower(bytes(batch.data), now_ms=STARTED_MS)
            log.update_high_watermark(log.log_end_offset)
            log.housekeep(STARTED_MS)
        if end is None:
            self.lead_without_writing(log, replica)
        start = read_offset_checkpoint(self.source / "log-start-offset-checkpoint").get(log.topic_partition, 0)
        if end is None and start > log.log_start_offset:
            log.delete_records(start)

    def lead_without_writing(self, log: UnifiedLog, replica: Replica) -> None:
        """Assign the epochs of leaders that wrote no records: a leader notes its epoch before its first write."""
        for epoch, start_offset in read_lineage(self.source / replica.case.partition).entries:
            if start_offset == log.log_end_offset:
                log.assign_leader_epoch(epoch, start_offset)

    def config_of(self, topic: str) -> LogConfig:
        replica = next(r for r in self.replicas if r.case.partition.rpartition("-")[0] == topic)
        return LogConfig.from_kafka({name: str(value) for name, value in replica.case.config.items()})


def first_base(directory: Path) -> int:
    return min(int(path.name.partition(".")[0]) for path in directory.glob("*.log"))


def batches_of(directory: Path) -> Iterator[RecordBatch]:
    for path in sorted(directory.glob("*.log")):
        yield from iter_batches(path.read_bytes(), name=str(path))


def as_produced(batch: RecordBatch) -> bytes:
    """Return the batch as a client sent it: from offset 0 on, without a time of the append."""
    data = bytearray(batch.data)
    set_last_offset(data, batch.last_offset - batch.base_offset)
    if batch.timestamp_type == TimestampType.LOG_APPEND_TIME.value:
        set_max_timestamp(data, TimestampType.CREATE_TIME, batch.base_timestamp_ms)
    return bytes(data)


@pytest.fixture(scope="module", params=["leader", "follower"])
def written(request: pytest.FixtureRequest, golden: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    log_dirs = {}
    for logdir in LOG_DIRS:
        log_dirs[logdir] = tmp_path_factory.mktemp("written") / "logdir"
        log_dirs[logdir].mkdir()
        replicas = [replica for replica in REPLICAS if replica.logdir == logdir]
        Writer(log_dirs[logdir], golden / logdir, replicas, as_leader=request.param == "leader").write()
    return log_dirs


@pytest.mark.parametrize("replica", REPLICAS, ids=lambda replica: replica.id)
def test_appended_directory_equals_that_of_the_broker_byte_for_byte(
    golden: Path, written: dict[str, Path], replica: Replica
) -> None:
    ours = written[replica.logdir] / replica.case.partition
    theirs = golden / replica.logdir / replica.case.partition
    stops = {file_name(offset, ".snapshot") for offset in replica.restarted_at}
    names = {path.name for path in theirs.iterdir()}
    assert {path.name for path in ours.iterdir()} - stops == names - stops
    for name in sorted(names - stops):
        if name.endswith(".snapshot"):
            assert set(read_producer_snapshot(ours / name)) == set(read_producer_snapshot(theirs / name)), name
        elif name == "leader-epoch-checkpoint":
            assert read_lineage(ours / name) == read_lineage(theirs / name)
        else:
            assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name


@pytest.mark.parametrize("logdir", LOG_DIRS)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_written_checkpoint_equals_that_of_the_broker(
    golden: Path, written: dict[str, Path], logdir: str, name: str
) -> None:
    kept = {replica.case.partition for replica in REPLICAS if replica.logdir == logdir}
    theirs = read_offset_checkpoint(golden / logdir / name)
    assert read_offset_checkpoint(written[logdir] / name) == {
        partition: offset for partition, offset in theirs.items() if str(partition) in kept
    }
