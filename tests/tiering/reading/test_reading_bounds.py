"""End of reads of committed records without a local last stable offset: that of the tier itself."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.fakes.remote_segments import DELETE_STARTED
from tests.log.logs import NOW_MS, TransactionalProducers
from tests.tiering.reading.test_fetch_task import CountingStorage
from tests.tiering.setups import Tier as Stores
from tests.tiering.setups import partition_of
from tierd.errors import RemoteIntegrityError, RemoteResourceNotFoundError, RetriableRemoteStorageError
from tierd.log import LogConfig, iter_batches, opened_partition
from tierd.metadata import PartitionView
from tierd.model import IndexType, IsolationLevel, RemoteLogSegmentMetadata
from tierd.tiering import FetchTask, OffsetSpec, Tier, TieredLog

TOPIC_ID = UUID(int=249)
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


class Storage(CountingStorage):
    """Storage whose producer snapshots a test may remove or change."""

    snapshots: Callable[[RemoteLogSegmentMetadata], bytes | None] = staticmethod(lambda _: None)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        content = await super().fetch_index(metadata, index_type)
        changed = self.snapshots(metadata) if index_type is IndexType.PRODUCER_SNAPSHOT else None
        return content if changed is None else changed


class Host:
    """Partition that its leader writes, and a reader on another host: without a replica, or with an older one.

    Layout: "-" is a record without a transaction, "A" one in the transaction of producer A, "A+" the marker that
    commits it, "A!" the one that aborts it, and "|" rolls the segment.
    """

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        log_dir = LogDirWriter(tmp_path / "kafka").path
        self.path = log_dir / "payments-0"
        with opened_partition(self.path, config=LogConfig(), now_ms=NOW_MS, create_with=TOPIC_ID) as log:
            log.assign_leader_epoch(0, 0)
        self.storage = Storage(stores := Stores(tmp_path, [log_dir]))
        self.session = stores.session(storage=lambda _: self.storage)
        self.replica: Path | None = None
        self.replicated_to: int | None = None

    def write(self, layout: str) -> "Host":
        with opened_partition(self.path, config=LogConfig(), now_ms=NOW_MS) as log:
            producers = TransactionalProducers(log)
            for entry in layout.split():
                if entry == "|":
                    log.roll(now_ms=NOW_MS)
                else:
                    producers.append(entry)
        return self

    async def copy(self) -> "Host":
        assert [o.error for o in (await self.session.copy_once()).values()] == [None]
        return self

    def replicate(self, *, high_watermark: int, from_segment: int = 0) -> None:
        """Give the reader the present log, committed up to the high watermark."""
        self.replica = self.tmp_path / "replica" / self.path.name
        shutil.copytree(self.path, self.replica, dirs_exist_ok=True)
        for file in self.replica.glob("0*.*"):
            if int(file.name[:20]) < from_segment:
                file.unlink()
        self.replicated_to = high_watermark

    async def look(self) -> TieredLog:
        log = await self.session.tiered_log(self.replica or self.path)
        if self.replica is None:
            return replace(log, scan=None, high_watermark=None, log_start_checkpoint=None)
        return replace(log, high_watermark=self.replicated_to)

    @property
    def reader(self) -> FetchTask:
        return FetchTask(self.look, remote=self.storage, recorder=self.session.recorder, prefetch_bytes=1 << 20)

    async def offsets(self, isolation: IsolationLevel = COMMITTED, reader: FetchTask | None = None) -> list[int]:
        return [r.offset async for r in (reader or self.reader).records(None, None, isolation)]

    @property
    def snapshots_fetched(self) -> int:
        return self.storage.indexes.count(IndexType.PRODUCER_SNAPSHOT)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


class TestWithoutAReplica:
    async def test_records_aborted_by_a_marker_that_the_tier_lacks_are_not_shown(self, host: Host) -> None:
        await host.write("- A - | A! -").copy()
        assert host.session.finished(partition_of(host.path)) == [(0, 2)]
        assert await host.offsets(UNCOMMITTED) == [0, 1, 2]
        assert await host.offsets() == [0]

    @pytest.mark.parametrize(("marker", "shown"), [("A!", [0, 2, 4]), ("A+", [0, 1, 2, 4])])
    async def test_reader_continues_once_the_marker_is_in_the_tier(
        self, host: Host, marker: str, shown: list[int]
    ) -> None:
        await host.write(f"- A - | {marker} -").copy()
        reader = host.reader
        assert await host.offsets(reader=reader) == [0]
        await host.write("|").copy()
        assert await host.offsets(reader=reader) == shown

    async def test_fetch_behind_the_last_stable_offset_is_empty_and_no_error(self, host: Host) -> None:
        await host.write("- A - | A! -").copy()
        for offset in (1, 2, 3):
            result = await host.reader.read(offset, max_bytes=1 << 20, isolation=COMMITTED)
            assert (result.data, result.next_offset) == (b"", offset)

    async def test_fetch_of_a_segment_with_an_open_transaction_ends_where_the_transaction_began(
        self, host: Host
    ) -> None:
        await host.write("- A - | A! -").copy()
        committed = await host.reader.read(0, max_bytes=1 << 20, isolation=COMMITTED)
        assert [batch.base_offset for batch in iter_batches(committed.data, name="committed")] == [0]
        assert committed.next_offset == 1

    async def test_latest_committed_offset_is_where_the_open_transaction_began(self, host: Host) -> None:
        await host.write("- A - | A! -").copy()
        committed = await host.reader.list_offset(OffsetSpec.LATEST, isolation=COMMITTED)
        uncommitted = await host.reader.list_offset(OffsetSpec.LATEST, isolation=UNCOMMITTED)
        assert committed is not None
        assert uncommitted is not None
        assert (committed.offset, uncommitted.offset) == (1, 3)

    async def test_timestamp_search_behind_the_last_stable_offset_finds_no_record(self, host: Host) -> None:
        await host.write("A - | A! -").copy()
        assert await host.reader.list_offset(0, isolation=COMMITTED) is None
        found = await host.reader.list_offset(0, isolation=UNCOMMITTED)
        assert found is not None
        assert found.offset == 0

    async def test_tier_without_an_open_transaction_is_read_to_its_end(self, host: Host) -> None:
        await host.write("A A! - | B - | B+ -").copy()
        assert await host.offsets() == [2]
        await host.write("|").copy()
        assert await host.offsets() == [2, 3, 4, 6]

    async def test_records_whose_marker_is_in_a_hole_of_the_tier_are_not_shown_whatever_is_known_behind_it(
        self, host: Host
    ) -> None:
        await host.write("- A - | A! - | B B! | -").copy()
        seen = await host.look()

        async def look() -> TieredLog:
            return replace(seen, view=_without(seen, 1))

        reader = FetchTask(look, remote=host.storage, recorder=host.session.recorder, prefetch_bytes=1 << 20)
        with pytest.raises(RetriableRemoteStorageError, match="began at offset 1 was committed or aborted at offset 3"):
            await host.offsets(reader=reader)
        assert (await reader.read(5, max_bytes=1 << 20, isolation=COMMITTED)).next_offset == 7

    async def test_last_stable_offset_is_at_the_earliest_of_several_open_transactions(self, host: Host) -> None:
        await host.write("- B A | B - | A! B+ -").copy()
        assert await host.offsets() == [0]

    async def test_open_transactions_are_looked_up_once_for_each_last_segment(self, host: Host) -> None:
        await host.write("- A | A! -").copy()
        reader = host.reader
        assert await host.offsets(UNCOMMITTED, reader) == [0, 1]
        assert host.snapshots_fetched == 0
        for _ in range(3):
            assert await host.offsets(reader=reader) == [0]
        assert host.snapshots_fetched == 1
        await host.write("|").copy()
        for _ in range(3):
            assert await host.offsets(reader=reader) == [0, 3]
        assert host.snapshots_fetched == 2

    async def test_committed_reader_of_an_empty_tier_returns_no_record(self, host: Host) -> None:
        await host.write("-").copy()
        assert await host.offsets() == []
        assert host.snapshots_fetched == 0


class TestFailures:
    async def test_missing_snapshot_is_an_error(self, host: Host) -> None:
        await host.write("- A | A! -").copy()
        host.storage.snapshots = _gone
        with pytest.raises(RemoteResourceNotFoundError):
            await host.offsets()
        with pytest.raises(RemoteResourceNotFoundError):
            await host.reader.list_offset(OffsetSpec.LATEST, isolation=COMMITTED)

    async def test_damaged_snapshot_is_an_integrity_error_of_the_tier(self, host: Host) -> None:
        await host.write("- A | A! -").copy()
        host.storage.snapshots = lambda _: b"garbage"
        with pytest.raises(RemoteIntegrityError, match="producer_snapshot"):
            await host.offsets()

    async def test_snapshot_of_a_segment_that_was_replaced_during_the_read_is_looked_up_again(self, host: Host) -> None:
        await host.write("- - | - A | A! -").copy()
        seen, looks = await host.look(), list[TieredLog]()
        whole = host.storage.snapshots

        def gone_once(metadata: RemoteLogSegmentMetadata) -> bytes | None:
            host.storage.snapshots = whole
            return _gone(metadata)

        async def look() -> TieredLog:
            looks.append(seen if not looks else replace(seen, view=_without(seen, -1)))
            return looks[-1]

        host.storage.snapshots = gone_once
        reader = FetchTask(look, remote=host.storage, recorder=host.session.recorder, prefetch_bytes=1 << 20)
        assert await host.offsets(reader=reader) == [0, 1]
        assert len(looks) == 2


class TestWithAReplica:
    async def test_replica_that_reaches_the_marker_decides_and_no_snapshot_is_fetched(self, host: Host) -> None:
        await host.write("- A - | A! -").copy()
        host.replicate(high_watermark=5)
        assert await host.offsets() == [0, 2, 4]
        assert host.snapshots_fetched == 0

    async def test_snapshot_at_the_start_of_a_replica_is_fetched_once_to_find_what_its_broker_forgot(
        self, host: Host
    ) -> None:
        await host.write("- A - | A! -").copy()
        host.replicate(high_watermark=5, from_segment=3)
        assert await host.offsets() == [0, 2, 4]
        assert host.snapshots_fetched == 1

    @pytest.mark.parametrize("high_watermark", [0, 1, 2, 3])
    async def test_replica_that_ends_before_the_marker_leaves_the_transaction_open(
        self, host: Host, high_watermark: int
    ) -> None:
        await host.write("- A -").copy()
        host.replicate(high_watermark=high_watermark)
        await host.write("| A! -").copy()
        assert host.session.finished(partition_of(host.path)) == [(0, 2)]
        assert await host.offsets() == [0]

    async def test_transaction_that_began_below_the_first_local_segment_is_open(self, host: Host) -> None:
        await host.write("- A - | - A! -").copy()
        host.replicate(high_watermark=4, from_segment=3)
        assert await host.offsets() == [0]
        latest = await host.reader.list_offset(OffsetSpec.LATEST, isolation=COMMITTED)
        assert latest is not None
        assert latest.offset == 1

    async def test_abort_that_only_the_tier_has_is_applied_to_local_records(self, host: Host) -> None:
        host.write("- A -").replicate(high_watermark=3)
        await host.write("| A! - | -").copy()
        assert host.session.finished(partition_of(host.path)) == [(0, 2), (3, 4)]
        assert await host.offsets() == [0, 2, 4]
        result = await host.reader.read(1, max_bytes=1 << 20, isolation=COMMITTED)
        assert (result.tier, [a.first_offset for a in result.aborted]) == (Tier.LOCAL, [1])

    @pytest.mark.parametrize(("marker", "shown"), [("A!", [0, 2, 4, 5]), ("A+", [0, 1, 2, 4, 5])])
    async def test_records_whose_marker_is_in_no_place_are_not_shown_until_it_is_copied(
        self, host: Host, marker: str, shown: list[int]
    ) -> None:
        await host.write(f"- A - | {marker} -").copy()
        assert host.session.finished(partition_of(host.path)) == [(0, 2)]
        host.write("| -").replicate(high_watermark=6, from_segment=5)  # the broker has deleted offsets 3 and 4
        with pytest.raises(RetriableRemoteStorageError, match="began at offset 1 was committed or aborted at offset 3"):
            await host.offsets()
        behind = await host.reader.read(5, max_bytes=1 << 20, isolation=COMMITTED)
        assert (behind.tier, behind.next_offset) == (Tier.LOCAL, 6)
        await host.copy()
        assert await host.offsets() == shown

    async def test_hole_behind_decided_transactions_does_not_keep_their_records_back(self, host: Host) -> None:
        await host.write("A A! B B+ | - - |").copy()
        host.write("- | -").replicate(high_watermark=8, from_segment=7)
        read = await host.reader.read(0, max_bytes=1 << 20, isolation=COMMITTED)
        assert (read.next_offset, [a.first_offset for a in read.aborted]) == (4, [0])
        assert host.snapshots_fetched == 1


def _gone(metadata: RemoteLogSegmentMetadata) -> bytes | None:
    raise RemoteResourceNotFoundError(f"{metadata.segment} is gone")


def _without(log: TieredLog, place: int) -> PartitionView:
    gone = log.finished[place].advance(DELETE_STARTED, event_timestamp_ms=NOW_MS, broker_id=1)
    return log.view.with_updated(gone).view
