import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.remote_segments import PARTITION
from tests.pipeline.committing.lab import COMPACTED, LeaderLab
from tests.pipeline.planning.tiers import other_partition
from tierd.errors import RemoteIndexAbsentError
from tierd.log import AbortedTransaction, ProducerStateEntry
from tierd.model import IndexType, Lineage, RemoteLogSegmentMetadata, TopicIdPartition
from tierd.pipeline.committing import LeaderSettings
from tierd.pipeline.planning import Candidate, Chain, CleaningPolicy
from tierd.pipeline.planning.work_order import Group
from tierd.remote import SegmentStorage

OTHER = other_partition(1)
FIRST, SECOND = AbortedTransaction(1, 2, 12, 12), AbortedTransaction(2, 14, 25, 25)


@pytest.fixture
def lab(tmp_path: Path) -> LeaderLab:
    return LeaderLab(tmp_path)


def producer(producer_id: int, *, open_since: int = -1) -> ProducerStateEntry:
    return ProducerStateEntry(producer_id, 0, 0, 5, 0, 1, -1, open_since)


class SlowIndexes(SegmentStorage):
    """Storage that never returns one kind of index, and counts concurrent fetches of the others."""

    def __init__(self, inner: SegmentStorage, never: IndexType | None = None) -> None:
        self._inner = inner
        self._never = never
        self._fetching = 0
        self.most_at_once = 0

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        self._fetching += 1
        self.most_at_once = max(self.most_at_once, self._fetching)
        try:
            if index_type is self._never:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            return await self._inner.fetch_index(metadata, index_type)
        finally:
            self._fetching -= 1


async def test_segments_of_a_partition_are_surveyed_outside_the_event_loop(
    lab: LeaderLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition may have thousands of segments, and a run surveys every partition while the daemon copies."""
    looking: list[threading.Thread] = []
    chain = Candidate.chain

    def looked(candidate: Candidate) -> Chain:
        looking.append(threading.current_thread())
        return chain(candidate)

    await lab.copy_tier(0, 10, 20)
    monkeypatch.setattr(Candidate, "chain", looked)
    prepared = await lab.leader.prepare([lab.candidate()], audit_bytes=1 << 20)
    assert len(prepared.order.partitions) == 1
    assert looking
    assert threading.current_thread() not in looking


class TestEvidence:
    async def test_round_before_a_hole_ends_at_a_transaction_that_is_open_there(self, lab: LeaderLab) -> None:
        """Its marker may be among the offsets that are copied again: nobody knows before if it was aborted."""
        await lab.lead()
        await lab.copy(0, 9)
        await lab.copy(10, 19, producers=[producer(1, open_since=15)])
        await lab.copy(30, 39, producers=[producer(1)])
        lost = replace(lab.candidate(), lineage=Lineage.of([(0, 0)]))
        (work,) = (await lab.leader.prepare([lost])).order.partitions
        assert [m.start_offset for m in work.inputs] == [0]
        await lab.leader.end()
        gone = replace(lab.candidate(), lineage=Lineage.of([(0, 30)]))
        (work,) = (await lab.leader.prepare([gone])).order.partitions
        assert [m.start_offset for m in work.inputs] == [0, 10, 30]

    async def test_order_has_the_snapshot_of_the_last_segment_and_all_aborted_transactions(
        self, lab: LeaderLab
    ) -> None:
        await lab.lead()
        await lab.copy(0, 9, producers=[producer(1)])
        await lab.copy(10, 19, aborted=[FIRST])
        await lab.copy(20, 29, aborted=[SECOND], producers=[producer(1), producer(2)])
        work = (await lab.prepare()).partitions[0]
        assert work.aborted == (FIRST, SECOND)
        assert set(work.live_producers()) == {1, 2}

    async def test_inputs_end_before_the_earliest_open_transaction(self, lab: LeaderLab) -> None:
        """The marker may lie beyond the end of the tier: an aborted record must never supersede a committed one."""
        await lab.lead()
        await lab.copy(0, 9)
        await lab.copy(10, 19)
        await lab.copy(20, 29, producers=[producer(1, open_since=15), producer(2)])
        work = (await lab.prepare()).partitions[0]
        assert [row.start_offset for row in work.inputs] == [0]
        assert work.round_end_offset == 10

    async def test_a_partition_whose_first_transaction_is_open_is_skipped(self, lab: LeaderLab) -> None:
        await lab.lead()
        await lab.copy(0, 9, producers=[producer(1, open_since=0)])
        prepared = await lab.leader.prepare([lab.candidate()])
        assert prepared.order.partitions == ()
        assert "offset 0 is open" in prepared.skipped[0].reason

    async def test_abort_marker_in_the_readable_part_of_a_segment_counts(self, lab: LeaderLab) -> None:
        """The other part of the segment is of an abandoned branch, and its markers do not count."""
        await lab.lead()
        here, given_up = AbortedTransaction(1, 2, 12, 12), AbortedTransaction(2, 3, 25, 25)
        await lab.copy(0, 9)
        await lab.copy(10, 29, aborted=[here, given_up])
        await lab.copy(20, 39, epochs=2)
        candidate = replace(lab.candidate(), lineage=Lineage.of([(0, 0), (2, 20)]))
        work = (await lab.leader.prepare([candidate])).order.partitions[0]
        assert [row.start_offset for row in work.inputs] == [0]
        assert work.aborted == (here,)

    async def test_a_segment_without_transaction_index_has_no_aborted_transactions(self, lab: LeaderLab) -> None:
        (row,) = await lab.copy_tier(0)
        with pytest.raises(RemoteIndexAbsentError):
            await lab.storage.fetch_index(row, IndexType.TRANSACTION)
        assert (await lab.prepare()).partitions[0].aborted == ()

    @pytest.mark.spec("log-format CLM-02")
    async def test_partition_that_cannot_be_surveyed_is_skipped_by_name_and_others_are_ordered(
        self, lab: LeaderLab
    ) -> None:
        rows = await lab.copy_tier(0, 10)
        await lab.copy_tier(0, 10, partition=OTHER)
        await lab.storage.delete_log_segment_data(rows[-1])
        prepared = await lab.leader.prepare([lab.candidate(), lab.candidate(partition=OTHER)])
        assert [work.partition for work in prepared.order.partitions] == [OTHER]
        assert str(PARTITION) in prepared.skipped[0].reason
        assert prepared.skipped[0].partition == PARTITION

    async def test_partition_with_a_damaged_snapshot_is_skipped(self, lab: LeaderLab) -> None:
        await lab.lead()
        begun = await lab.copy(0, 9)
        lab.leader = lab.leader_over(_Damaging(lab.storage))
        prepared = await lab.leader.prepare([lab.candidate()])
        assert str(begun.segment) in prepared.skipped[0].reason

    async def test_fetch_of_an_index_without_an_answer_meets_a_deadline(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        slow = SlowIndexes(lab.storage, never=IndexType.PRODUCER_SNAPSHOT)
        lab.leader = lab.leader_over(slow, LeaderSettings(fetch_timeout_s=0.01))
        prepared = await lab.leader.prepare([lab.candidate()])
        assert "no producer_snapshot index within 0.01 s" in prepared.skipped[0].reason

    async def test_concurrent_fetches_of_indexes_are_bounded(self, lab: LeaderLab) -> None:
        await lab.lead()
        for number in range(12):
            start = number * 10
            await lab.copy(start, start + 9, aborted=[AbortedTransaction(1, start, start + 5, start + 5)])
        slow = SlowIndexes(lab.storage)
        lab.leader = lab.leader_over(slow, LeaderSettings(fetch_concurrency=3))
        assert len((await lab.prepare()).partitions[0].aborted) == 12
        assert slow.most_at_once == 3


class TestChoice:
    async def test_dirtiest_partition_is_chosen_and_the_others_wait_beyond_the_limit(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.metadata.advance_compacted_to(PARTITION, 10)
        await lab.copy_tier(0, 10, partition=OTHER)
        policy = CleaningPolicy(compacts=True, min_cleanable_dirty_ratio=0.1)
        candidates = [lab.candidate(policy), lab.candidate(policy, partition=OTHER)]
        prepared = await lab.leader.prepare(candidates, max_bytes=250)
        assert [work.partition for work in prepared.order.partitions] == [OTHER]
        assert "left to the next one" in prepared.skipped[0].reason

    async def test_partition_that_cannot_be_ordered_yields_its_bytes_to_others_in_the_next_run(
        self, lab: LeaderLab
    ) -> None:
        """Such a partition stays the dirtiest, and would use up the limit of every run."""
        first = await lab.copy_tier(0, 10, 20)
        await lab.copy_tier(0, 10, partition=OTHER)

        async def ordered() -> list[TopicIdPartition]:
            candidates = [lab.candidate(partition=partition) for partition in (PARTITION, OTHER)]
            prepared = await lab.leader.prepare(candidates, max_bytes=300)
            return [work.partition for work in prepared.order.partitions]

        assert await ordered() == [PARTITION]
        await lab.leader.failed(0, 0, "it is damaged")
        await lab.leader.end()
        assert await ordered() == [OTHER]
        await lab.leader.end()
        assert await ordered() == [PARTITION], "no partition waits for ever"
        await lab.leader.end()

        lab.leader = lab.leader_over(_Damaging(lab.storage, first[-1]))
        assert await ordered() == []
        await lab.leader.end()
        assert await ordered() == [OTHER]

    async def test_order_without_candidates_is_empty(self, lab: LeaderLab) -> None:
        prepared = await lab.leader.prepare([])
        assert (prepared.order.partitions, prepared.skipped) == ((), ())

    async def test_groups_are_filled_up_to_the_size_of_a_segment(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20)
        assert (await lab.prepare(COMPACTED)).partitions[0].groups == (Group(0, 1), Group(2, 2))


class _Damaging(SegmentStorage):
    """Storage that returns damaged snapshots, of all segments or of one."""

    def __init__(self, inner: SegmentStorage, segment: RemoteLogSegmentMetadata | None = None) -> None:
        self._inner = inner
        self._segment = segment

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        content = await self._inner.fetch_index(metadata, index_type)
        return content[:-1] if self._segment in (None, metadata) else content
