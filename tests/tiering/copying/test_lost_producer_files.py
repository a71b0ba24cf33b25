"""Producer snapshots and transaction indexes that the broker lost are rebuilt byte for byte: copying continues."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS, LogDirWriter, PartitionWriter
from tests.golden.unpack import GoldenCase, golden_cases
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, HoldModeName, Session, Tier, delete_segment, partition_of
from tierd.errors import MissingArtefactError, RetriableRemoteStorageError, TierError
from tierd.log import (
    AbortedTransaction,
    ControlRecordType,
    NewRecord,
    Producer,
    ProducerStateEntry,
    TransactionIndex,
    encode_batch,
    encode_end_marker,
    parse_producer_snapshot,
)
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.model import IndexType, IsolationLevel, RemoteLogSegmentMetadata
from tierd.remote import SegmentStorage

REPLICAS = [
    (case, logdir)
    for case in golden_cases("clean", "epochs")
    if not case.partition.startswith("__")
    for logdir in case.logdirs
]
every_replica = pytest.mark.parametrize("replica", REPLICAS, ids=lambda r: f"{r[0].id}-{Path(r[1]).parent.name}")


class FlakyStorage(SegmentStorage):
    """SegmentStorage whose indexes are unreachable for a while."""

    def __init__(self, tier: Tier) -> None:
        super().__init__(tier.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)
        self.is_reachable = True

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        if not self.is_reachable:
            raise RetriableRemoteStorageError("the store does not answer")
        return await super().fetch_index(metadata, index_type)


class Replica:
    """Partition that a broker wrote, the bytes of its files, and sessions that copy it."""

    def __init__(self, tmp_path: Path, directory: Path) -> None:
        self.path = tmp_path / "kafka" / directory.name
        shutil.copytree(directory, self.path)
        self.written = {file.name: file.read_bytes() for file in directory.iterdir()}
        self.bases = sorted(int(file.stem) for file in directory.glob("*.log"))
        self.stable = self._stable()
        self.partition = partition_of(self.path)
        self.tier = Tier(tmp_path, [self.path.parent])
        self.storage = FlakyStorage(self.tier)
        self.commit(1 << 40)
        self.session = self.new_session()

    def _stable(self) -> int:
        """Return the begin of the earliest unfinished transaction, from the snapshot of the clean stop."""
        newest = max((name for name in self.written if name.endswith(".snapshot")), default=None)
        producers = () if newest is None else parse_producer_snapshot(self.written[newest], newest)
        began = [each.current_txn_first_offset for each in producers if each.current_txn_first_offset >= 0]
        return min(began, default=1 << 40)

    def new_session(self, hold_mode: HoldModeName = "none") -> Session:
        """Start a process of tierd; by default it holds no segment, so that lost files stay lost."""
        return self.tier.session(hold_mode=hold_mode, storage=lambda _: self.storage)

    def commit(self, high_watermark: int) -> None:
        topic, number = self.partition.topic, self.partition.partition
        content = f"0\n1\n{topic} {number} {high_watermark}\n"
        (self.path.parent / "replication-offset-checkpoint").write_text(content)

    def lose(self, *suffixes: str, at: Iterable[int] | None = None) -> None:
        """Delete the files of these kinds, all or those at some offsets."""
        for file in list(self.path.iterdir()):
            if file.suffix in suffixes and (at is None or int(file.stem) in at):
                file.unlink()

    def delete(self, *bases: int) -> None:
        """Let the broker's retention delete these segments."""
        for base in bases:
            delete_segment(self.path, base)

    def lose_before(self, base_offset: int) -> None:
        """Let the broker delete all records below an offset while tierd does not run; all of them are committed."""
        self.delete(*(base for base in self.bases if base < base_offset))
        self.commit(1 << 40)
        self.session = self.new_session()

    async def lose_indexes(self, base_offset: int) -> None:
        """Let the tier lose the indexes of a segment."""
        for info in await self.tier.store.list_objects(""):
            if info.key.endswith(".indexes") and f"/{base_offset:020d}-" in info.key:
                await self.tier.store.delete(info.key)

    async def copy(self) -> TierError | None:
        return (await self.session.copy_once())[str(self.partition.topic_partition)].error

    async def stored(self, base_offset: int, kind: IndexType) -> bytes:
        (row,) = (row for row in self.session.rows(self.partition) if row.start_offset == base_offset)
        return await self.storage.fetch_index(row, kind)

    async def assert_as_written(self) -> None:
        """Fail unless the tier has every rolled and stable segment with the producer files of the broker."""
        rows = self.session.rows(self.partition)
        ends = [following - 1 for following in self.bases[1:] if following <= self.stable]
        assert [end for _, end in self.session.finished(self.partition)] == ends
        for row in rows:
            snapshot = self.written.get(f"{row.end_offset + 1:020d}.snapshot")
            if snapshot is not None:
                assert await self.storage.fetch_index(row, IndexType.PRODUCER_SNAPSHOT) == snapshot
            index = self.written.get(f"{row.start_offset:020d}.txnindex", b"")
            assert row.txn_index_empty is not bool(index)
            if index:
                assert await self.storage.fetch_index(row, IndexType.TRANSACTION) == index


def replica_of(golden: Path, tmp_path: Path, replica: tuple[GoldenCase, str]) -> Replica:
    case, logdir = replica
    return Replica(tmp_path, golden / logdir / case.partition)


@pytest.fixture
def closed(golden: Path, tmp_path: Path) -> Replica:
    """Return seven segments of three transactional producers, every transaction decided, some over a roll."""
    (found,) = ((case, d) for case, d in REPLICAS if case.partition == "txn-closed-0" and case.broker.endswith("3.9.2"))
    return replica_of(golden, tmp_path, found)


@pytest.fixture
async def half(closed: Replica) -> Replica:
    """Return the partition of ``closed`` with three segments in the tier; two transactions are open at offset 173."""
    closed.commit(284)
    assert await closed.copy() is None
    assert [base for base, _ in closed.session.finished(closed.partition)] == [0, 56, 116]
    return closed


class TestRebuiltFiles:
    @every_replica
    async def test_producer_files_are_rebuilt_when_all_are_lost(
        self, golden: Path, tmp_path: Path, replica: tuple[GoldenCase, str]
    ) -> None:
        of = replica_of(golden, tmp_path, replica)
        if of.bases[0] > 0:
            return  # records of the producers are deleted: the test of a gap covers this case
        of.lose(".snapshot", ".txnindex")
        assert await of.copy() is None
        await of.assert_as_written()

    @every_replica
    async def test_producer_files_are_rebuilt_when_those_of_every_second_roll_are_lost(
        self, golden: Path, tmp_path: Path, replica: tuple[GoldenCase, str]
    ) -> None:
        of = replica_of(golden, tmp_path, replica)
        of.lose(".snapshot", ".txnindex", at=of.bases[1::2])
        if of.bases[0] > 0:
            return
        assert await of.copy() is None
        await of.assert_as_written()

    @pytest.mark.parametrize("hold_mode", ["link", "descriptor"])
    async def test_producer_files_are_rebuilt_in_any_hold_mode(self, closed: Replica, hold_mode: HoldModeName) -> None:
        closed.session = closed.new_session(hold_mode)
        closed.lose(".snapshot", ".txnindex")
        assert await closed.copy() is None
        await closed.assert_as_written()

    @pytest.mark.parametrize("damage", [lambda c: b"\x00\x07" + c[2:], lambda c: c[:-1]], ids=["other", "torn"])
    async def test_damaged_producer_files_are_rebuilt(self, closed: Replica, damage: Callable[[bytes], bytes]) -> None:
        for file in [*closed.path.glob("*.snapshot"), *closed.path.glob("*.txnindex")]:
            file.write_bytes(damage(file.read_bytes()))
        assert await closed.copy() is None
        await closed.assert_as_written()

    async def test_rebuild_of_each_file_is_logged_with_segment_and_source(self, closed: Replica) -> None:
        closed.lose(".snapshot", at=[116])
        closed.lose(".txnindex", at=[56])
        with capture_logs() as events:
            await closed.copy()
        told = {event["event"]: event for event in events if event["log_level"] == "warning"}
        assert told.keys() == {"producer_snapshot_rebuilt", "transaction_index_rebuilt"}
        for event in told.values():
            assert event["segment"] == str(closed.path / f"{56:020d}.log")
            assert (event["replayed_from"], event["known_from"]) == (56, "this host")
            assert "missing" in event["problem"]


class TestSourcesOfState:
    async def test_snapshot_is_rebuilt_from_the_segment_before_in_the_tier(self, half: Replica) -> None:
        half.delete(0, 56, 116)
        half.lose(".snapshot", ".txnindex")
        half.commit(1 << 40)
        half.session = half.new_session()
        with capture_logs() as events:
            assert await half.copy() is None
        await half.assert_as_written()
        sources = [event["known_from"] for event in events if event["event"] == "producer_snapshot_rebuilt"]
        assert sources == ["the tier", "this host", "this host"]

    async def test_snapshot_is_rebuilt_from_an_earlier_snapshot_and_the_segments_in_between(
        self, half: Replica
    ) -> None:
        """A broker rebuilds its snapshots in this way; here the tier has lost the indexes of the segment before."""
        await half.lose_indexes(116)
        half.lose(".snapshot", ".txnindex", at=[174, 229])
        half.commit(1 << 40)
        with capture_logs() as events:
            assert await half.copy() is None
        assert await half.stored(174, IndexType.PRODUCER_SNAPSHOT) == half.written[f"{229:020d}.snapshot"]
        assert [e["replayed_from"] for e in events if e["event"] == "producer_snapshot_rebuilt"] == [116]

    async def test_snapshot_at_the_beginning_of_the_log_is_rebuilt_from_its_own_records(self, closed: Replica) -> None:
        closed.delete(0, 56)
        closed.lose(".snapshot", ".txnindex")
        assert await closed.copy() is None
        written = parse_producer_snapshot(closed.written[f"{174:020d}.snapshot"], "written")
        stored = parse_producer_snapshot(await closed.stored(116, IndexType.PRODUCER_SNAPSHOT), "stored")
        assert {e.producer_id: e.last_offset for e in stored} == {e.producer_id: e.last_offset for e in written}
        index = TransactionIndex.from_bytes(await closed.stored(116, IndexType.TRANSACTION), 116, "stored")
        assert [(entry.first_offset, entry.last_offset) for entry in index.entries] == [(116, 167)]
        assert [base for base, _ in closed.session.finished(closed.partition)] == [116, 174, 229, 284]

    async def test_lost_snapshots_behind_a_gap_do_not_stop_copying(self, half: Replica) -> None:
        half.lose_before(229)
        half.lose(".snapshot")
        assert await half.copy() is None
        assert [base for base, _ in half.session.finished(half.partition)] == [0, 56, 116, 229, 284]

    async def test_lost_transaction_index_behind_a_gap_is_not_rebuilt(self, half: Replica) -> None:
        """The tier holds aborted data from before the gap, and only the lost index marks it as aborted."""
        half.lose_before(229)
        index = half.path / f"{229:020d}.txnindex"
        half.lose(".snapshot", ".txnindex", at=[229])
        error = await half.copy()
        assert isinstance(error, MissingArtefactError)
        assert str(index) in str(error)
        assert "replica" in error.remedy


class TestMissingSources:
    @pytest.mark.spec("remote-tiering 152")
    async def test_segment_whose_producer_snapshot_has_no_source_gets_no_row(self, half: Replica) -> None:
        await half.lose_indexes(116)
        half.delete(0, 56, 116)
        half.lose(".snapshot", at=[174, 229])
        half.commit(1 << 40)
        error = await half.copy()
        assert isinstance(error, MissingArtefactError)
        assert str(half.path / f"{229:020d}.snapshot") in str(error)
        assert "repair-tier txn-closed-0" in error.remedy
        assert [row.start_offset for row in half.session.rows(half.partition)] == [0, 56, 116]
        assert half.session.recorder.failures == 1

    async def test_rebuild_from_a_store_without_an_answer_is_tried_again(self, half: Replica) -> None:
        half.delete(0, 56, 116)
        half.lose(".snapshot")
        half.commit(1 << 40)
        half.storage.is_reachable = False
        assert isinstance(await half.copy(), RetriableRemoteStorageError)
        half.storage.is_reachable = True
        assert await half.copy() is None
        await half.assert_as_written()


def append_transaction(writer: PartitionWriter, producer_id: int) -> None:
    """Append a record of an open transaction."""
    record, producer = NewRecord(None, b"x", FIRST_TIMESTAMP_MS), Producer(producer_id, 0, 0)
    writer.append_batch(encode_batch([record], producer=producer, is_transactional=True), 1)


def abort_of(producer_id: int) -> bytes:
    """Return the marker that aborts the transaction of a producer."""
    return encode_end_marker(
        kind=ControlRecordType.ABORT, producer_id=producer_id, producer_epoch=0, coordinator_epoch=3, timestamp_ms=0
    )


class TestAbortAcrossSegments:
    @pytest.fixture
    def aborted(self, tmp_path: Path) -> Path:
        """Return one transaction: its data in the first segment, and only its marker in the second."""
        log_dir = LogDirWriter(tmp_path / "kafka")
        writer = log_dir.add_partition("orders")
        append_transaction(writer, 7)
        writer.roll()
        entry = ProducerStateEntry(7, 0, 0, 0, 0, FIRST_TIMESTAMP_MS, -1, 0)
        (writer.path / f"{1:020d}.snapshot").write_bytes(encode_producer_snapshot((entry,)))
        writer.append_batch(abort_of(7), 1)
        writer.roll()
        writer.append([b"y"])
        log_dir.write_checkpoints()
        return writer.path

    async def test_index_of_an_abort_whose_data_is_in_an_earlier_segment_is_rebuilt(
        self, tmp_path: Path, aborted: Path
    ) -> None:
        """Without the index readers would take the aborted records in the segment before for committed ones."""
        session = Tier(tmp_path, [aborted.parent]).session()
        assert (await session.copy_once())["orders-0"].error is None
        first, second = session.rows(partition_of(aborted))
        assert (first.txn_index_empty, second.txn_index_empty) == (True, False)
        index = await session.storage.fetch_index(second, IndexType.TRANSACTION)
        assert TransactionIndex.from_bytes(index, 1, "index").entries == (AbortedTransaction(7, 0, 1, 2),)
        for base in (0, 1):
            delete_segment(aborted, base)
        assert [r.value for r in await session.read_all(aborted, IsolationLevel.READ_COMMITTED)] == [b"y"]

    @pytest.mark.parametrize("is_snapshot_forgetful", [False, True])
    async def test_index_that_lacks_an_abort_of_data_in_an_earlier_segment_is_completed(
        self, tmp_path: Path, is_snapshot_forgetful: bool
    ) -> None:
        """A broker that is killed after retention deleted the first segment recovers the second one without its end."""
        log_dir = LogDirWriter(tmp_path / "kafka")
        writer = log_dir.add_partition("orders")
        append_transaction(writer, 7)
        writer.roll()
        first = ProducerStateEntry(7, 0, 0, 0, 0, FIRST_TIMESTAMP_MS, -1, 0)
        snapshot = writer.path / f"{1:020d}.snapshot"
        snapshot.write_bytes(encode_producer_snapshot((first,)))
        session = Tier(tmp_path, [log_dir.path]).session()
        writer.append_batch(abort_of(7), 1)
        append_transaction(writer, 8)
        writer.append_batch(abort_of(8), 1)
        writer.append([b"y"])
        log_dir.write_checkpoints()
        assert (await session.copy_once())["orders-0"].error is None
        delete_segment(writer.path, 0)
        snapshot.unlink()
        if is_snapshot_forgetful:
            snapshot.write_bytes(encode_producer_snapshot(()))
        recovered = AbortedTransaction(8, 2, 3, 4)
        (writer.path / f"{1:020d}.txnindex").write_bytes(TransactionIndex((recovered,)).to_bytes())
        read = [r.value for r in await session.read_all(writer.path, IsolationLevel.READ_COMMITTED)]
        assert read == [b"y"], "while the second segment is local only"
        writer.roll()
        writer.append([b"z"])
        log_dir.write_checkpoints()
        assert (await session.copy_once())["orders-0"].error is None
        second = session.rows(partition_of(writer.path))[1]
        index = await session.storage.fetch_index(second, IndexType.TRANSACTION)
        entries = TransactionIndex.from_bytes(index, 1, "index").entries
        assert entries == (AbortedTransaction(7, 0, 1, 2), recovered)
        delete_segment(writer.path, 1)
        assert [r.value for r in await session.read_all(writer.path, IsolationLevel.READ_COMMITTED)] == [b"y", b"z"]

    async def test_marker_of_a_transaction_without_data_needs_no_index(self, tmp_path: Path, aborted: Path) -> None:
        empty = encode_producer_snapshot(())
        (aborted / f"{1:020d}.snapshot").write_bytes(empty)
        session = Tier(tmp_path, [aborted.parent]).session()
        assert (await session.copy_once())["orders-0"].error is None
        assert [row.txn_index_empty for row in session.rows(partition_of(aborted))] == [True, True]
