from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import DELETE_STARTED, PARTITION, STARTED
from tests.pipeline.committing.lab import COMPACTED, NEWEST_MS, NOTHING_HIDDEN, LeaderLab
from tests.pipeline.planning.tiers import other_partition
from tierd.errors import RefusedError, RemoteResourceNotFoundError
from tierd.metadata import MemoryKeyValueStore
from tierd.model import RemoteLogSegmentMetadata, uuid_to_text
from tierd.pipeline.committing import RunTally
from tierd.pipeline.committing.messages import Begun, RefusedGroup, Verdict
from tierd.pipeline.pipeline_errors import WorkOrderError
from tierd.pipeline.planning import CleaningPolicy, Output, WorkKind
from tierd.pipeline.planning.work_order import Group
from tierd.remote import SegmentManifest

OTHER = other_partition(1)


@pytest.fixture
async def rows() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


@pytest.fixture
async def lab(tmp_path: Path, rows: FaultyKeyValueStore) -> AsyncIterator[LeaderLab]:
    lab = LeaderLab(tmp_path, rows=rows)
    yield lab
    await lab.leader.end()
    assert not lab.being_copied


class TestBegin:
    async def test_begin_writes_a_row_for_each_group(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        assert (await lab.prepare()).partitions[0].groups == (Group(0, 1), Group(2, 3))
        outputs = await lab.begin(0, 1)
        assert [row.start_offset for row in lab.in_state(STARTED)] == [0, 20]
        first = outputs[0].metadata
        assert (first.start_offset, first.end_offset, first.size_bytes) == (0, 19, 200)
        assert first.custom_metadata == lab.storage.custom_metadata(first)
        assert (outputs[0].index, outputs[0].group) == (0, 0)
        assert lab.readable() == [(0, 9), (10, 19), (20, 29), (30, 39)]

    async def test_output_is_later_than_its_inputs_although_the_clock_was_set_back(self, lab: LeaderLab) -> None:
        inputs = await lab.copy_tier(0, 10)
        await lab.prepare()
        lab.clock.step_wall_clock(-10_000_000)
        output = (await lab.begin(0))[0].metadata
        assert output.event_timestamp_ms > max(row.event_timestamp_ms for row in inputs)

    async def test_an_output_has_the_epochs_of_its_inputs(self, lab: LeaderLab) -> None:
        await lab.lead()
        await lab.copy(0, 9, epochs={0: 0, 1: 5})
        await lab.copy(10, 19, epochs={1: 10, 3: 15})
        await lab.prepare()
        assert (await lab.begin(0))[0].metadata.segment_leader_epochs == ((0, 0), (1, 5), (3, 15))

    async def test_inputs_and_outputs_are_kept_from_expiration_and_sweep(self, lab: LeaderLab) -> None:
        inputs = {row.segment.id for row in await lab.copy_tier(0, 10)}
        await lab.prepare()
        assert lab.being_copied == inputs
        outputs = await lab.begin(0)
        assert lab.being_copied == inputs | {outputs[0].metadata.segment.id}

    @pytest.mark.parametrize("group", [-1, 2, 1 << 40])
    async def test_an_unknown_group_is_refused(self, lab: LeaderLab, group: int) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        begun = await lab.leader.begin(0, [0, group])
        assert [output.group for output in begun.outputs] == [0]
        assert [refused.group for refused in begun.refused] == [group]

    async def test_a_group_that_was_begun_is_refused_and_stays_open(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        assert await lab.leader.begin(0, [0]) == Begun(
            outputs=(), refused=(RefusedGroup(group=0, reason="group 0 is open already"),)
        )
        assert (await lab.leader.commit(output.metadata.segment.id, await lab.write(output), NOTHING_HIDDEN)).committed

    @pytest.mark.parametrize("index", [-1, 1])
    async def test_an_unknown_partition_is_an_error(self, lab: LeaderLab, index: int) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        with pytest.raises(WorkOrderError, match="no partition"):
            await lab.leader.begin(index, [0])

    @pytest.mark.spec("log-format CLM-06")
    @pytest.mark.spec("log-format CLN-02")
    async def test_a_group_whose_segments_retention_has_begun_to_delete_is_refused(self, lab: LeaderLab) -> None:
        inputs = await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        await lab.metadata.update(inputs[0].advance(DELETE_STARTED, event_timestamp_ms=1, broker_id=1))
        begun = await lab.leader.begin(0, [0, 1])
        assert [output.group for output in begun.outputs] == [1]
        assert "DELETE_SEGMENT_STARTED" in begun.refused[0].reason

    async def test_a_group_that_the_log_start_has_passed_is_refused(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        await lab.metadata.advance_log_start_offset(PARTITION, 25)
        begun = await lab.leader.begin(0, [0, 1])
        assert [output.group for output in begun.outputs] == [1]
        assert "starts at offset 25" in begun.refused[0].reason

    async def test_second_run_at_the_same_time_is_refused(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        with pytest.raises(RefusedError):
            await lab.prepare()


class TestCommit:
    async def test_commit_shows_the_output_to_readers_and_deletes_the_inputs_after_a_grace(
        self, lab: LeaderLab
    ) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        (output,) = await lab.begin(0)
        manifest = await lab.write(output, 70, newest_ms=NEWEST_MS - 1, txn_index_empty=False)
        assert await commit(lab, output, manifest) == Verdict(committed=True)
        assert lab.readable() == [(0, 19), (20, 29), (30, 39)]
        row = lab.metadata.view(PARTITION).segments[output.metadata.segment.id]
        assert (row.size_bytes, row.max_timestamp_ms, row.txn_index_empty) == (70, NEWEST_MS - 1, False)
        for gone in lab.in_state(DELETE_STARTED):
            assert gone.soft_delete is not None
            assert gone.soft_delete.is_replaced
            assert gone.soft_delete.delete_after_ms == lab.clock.now_ms() + 3_600_000

    async def test_manifest_of_an_output_names_its_inputs(self, lab: LeaderLab) -> None:
        inputs = await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        manifest = await lab.write(output)
        await commit(lab, output, manifest)
        stored = await lab.storage.read_manifest(manifest.completed(output.metadata))
        assert stored.replaces == tuple(uuid_to_text(row.segment.id) for row in inputs)

    async def test_empty_output_is_committed(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        assert (await commit(lab, output, await lab.write(output, 0, newest_ms=-1))).committed
        assert lab.readable() == [(0, 19)]

    async def test_commit_releases_its_inputs_for_expiration_and_sweep(self, lab: LeaderLab) -> None:
        inputs = await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        (output,) = await lab.begin(0)
        await commit(lab, output, await lab.write(output))
        assert lab.being_copied == {row.segment.id for row in inputs[2:]}

    @pytest.mark.spec("log-format CLM-10")
    async def test_partition_is_clean_after_the_commit_of_its_last_group(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        first, second = await lab.begin(0, 1)
        await commit(lab, first, await lab.write(first))
        assert lab.metadata.view(PARTITION).compacted_to is None
        await commit(lab, second, await lab.write(second))
        assert lab.metadata.view(PARTITION).compacted_to == 40

    async def test_merge_does_not_make_the_partition_clean(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare(CleaningPolicy(merge_below_bytes=1000))
        (output,) = await lab.begin(0)
        assert (await commit(lab, output, await lab.write(output, 200))).committed
        assert lab.metadata.view(PARTITION).compacted_to is None

    async def test_statistics_count_groups_bytes_and_records(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        for output in await lab.begin(0, 1):
            await commit(lab, output, await lab.write(output, 60))
        found = lab.leader.statistics()
        assert (found.groups, found.begun, found.committed) == (2, 2, 2)
        assert (found.tally.bytes_before, found.tally.bytes_after) == (400, 120)
        assert found.counts == {"records_tombstone": 0, "records_expired": 0, "records_superseded": 6}


Change = Callable[[SegmentManifest], SegmentManifest]


def changed(**fields: object) -> Change:
    return lambda manifest: manifest.model_copy(update=fields)


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "named"),
        [
            (changed(start_offset=1), "start_offset"),
            (changed(end_offset=20), "end_offset"),
            (changed(segment_leader_epochs=((0, 1),)), "segment_leader_epochs"),
            (changed(segment_id=uuid_to_text(UUID(int=9))), "segment_id"),
            (changed(topic_id=uuid_to_text(UUID(int=9))), "topic_id"),
            (changed(topic="another"), "topic"),
            (changed(partition=3), "partition"),
            (changed(leader_epoch=6), "leader_epoch"),
            (changed(session_id=str(UUID(int=9))), "session_id"),
            (changed(copy_started_ms=1), "copy_started_ms"),
            (changed(replaces=(uuid_to_text(UUID(int=9)),)), "replaces"),
            (changed(max_timestamp_ms=NEWEST_MS + 1), "newer than the newest"),
            (changed(size_bytes=2 << 20), "cannot have come of"),
            (changed(batch_count=0), "0 batches"),
            (changed(record_count=51), "51 records"),
            (changed(cluster_id="another"), "cluster"),
            (changed(size_bytes=49), ""),
        ],
    )
    async def test_a_manifest_that_does_not_fit_is_refused(self, lab: LeaderLab, change: Change, named: str) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        verdict = await commit(lab, output, change(await lab.write(output)))
        assert not verdict.committed
        assert named in verdict.reason
        await self.is_as_before(lab, output)

    async def test_an_output_without_its_objects_is_refused(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        manifest = await lab.write(output)
        await lab.storage.delete_log_segment_data(output.metadata)
        assert not (await commit(lab, output, manifest)).committed
        await self.is_as_before(lab, output)

    async def test_the_manifest_of_another_output_is_refused(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        first, second = await lab.begin(0, 1)
        assert not (await commit(lab, first, await lab.write(second))).committed
        assert lab.readable() == [(0, 9), (10, 19), (20, 29), (30, 39)]

    async def test_output_that_was_not_begun_is_refused(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        verdict = await lab.leader.commit(uuid4(), await lab.write(output), NOTHING_HIDDEN)
        assert "no open output" in verdict.reason

    async def test_an_output_is_committed_once(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        manifest = await lab.write(output)
        assert (await commit(lab, output, manifest)).committed
        assert not (await commit(lab, output, manifest)).committed
        assert lab.readable() == [(0, 19)]

    @pytest.mark.spec("log-format CLN-02")
    async def test_inputs_that_retention_deleted_during_the_run_are_not_replaced(self, lab: LeaderLab) -> None:
        inputs = await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        manifest = await lab.write(output)
        await lab.metadata.update(inputs[0].advance(DELETE_STARTED, event_timestamp_ms=1, broker_id=1))
        assert "DELETE_SEGMENT_STARTED" in (await commit(lab, output, manifest)).reason
        assert lab.readable() == []
        assert [row.start_offset for row in lab.in_state(DELETE_STARTED)] == [0, 0]

    async def test_inputs_that_another_copy_covered_during_the_run_are_not_replaced(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        manifest = await lab.write(output)
        await lab.copy(0, 39)
        assert "found by no reader" in (await commit(lab, output, manifest)).reason
        assert lab.readable() == [(0, 39)]

    async def test_group_is_left_as_it_was_after_an_undelete_during_the_run(self, lab: LeaderLab) -> None:
        """A tombstone that the run removed may hide a record that is back."""
        await lab.copy_tier(0, 10)
        await lab.metadata.advance_log_start_offset(PARTITION, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        manifest = await lab.write(output)
        await lab.metadata.lower_log_start_offset(PARTITION, 0)
        assert "older records are back" in (await commit(lab, output, manifest)).reason
        assert lab.readable() == [(0, 9), (10, 19)]

    async def is_as_before(self, lab: LeaderLab, output: Output) -> None:
        """Check that the group is unchanged, and that the sweep removes the output."""
        assert lab.readable() == [(0, 9), (10, 19)]
        given_up = lab.metadata.view(PARTITION).segments[output.metadata.segment.id]
        assert (given_up.state, given_up.soft_delete) == (DELETE_STARTED, None)
        assert not lab.being_copied
        assert lab.abandoned == [output.metadata.segment.id]
        assert lab.leader.statistics().refused == 1


class TestOrder:
    """A tombstone is removed once no record below it is hidden by it: earlier groups are committed first."""

    @pytest.mark.parametrize("count", ["records_tombstone", "records_expired"])
    async def test_group_that_uncovers_records_is_refused_while_earlier_groups_are_open(
        self, lab: LeaderLab, count: str
    ) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        _, second = await lab.begin(0, 1)
        verdict = await commit(lab, second, await lab.write(second), {**NOTHING_HIDDEN, count: 1})
        assert count in verdict.reason
        assert "group 0 before it is open" in verdict.reason
        assert lab.readable() == [(0, 9), (10, 19), (20, 29), (30, 39)]

    async def test_group_without_counts_is_refused_while_earlier_groups_are_open(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        _, second = await lab.begin(0, 1)
        assert (
            "records_tombstone and records_expired" in (await commit(lab, second, await lab.write(second), {})).reason
        )

    async def test_group_that_uncovers_records_is_refused_after_an_earlier_group_failed(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        _, second = await lab.begin(0, 1)
        await lab.leader.failed(0, 0, "corrupt")
        verdict = await commit(lab, second, await lab.write(second), {**NOTHING_HIDDEN, "records_tombstone": 2})
        assert "group 0 before it is left as it was" in verdict.reason

    @pytest.mark.parametrize("how", ["committed", "unchanged"])
    async def test_group_that_uncovers_records_is_committed_once_earlier_groups_are_done(
        self, lab: LeaderLab, how: str
    ) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        first, second = await lab.begin(0, 1)
        if how == "committed":
            await commit(lab, first, await lab.write(first))
        else:
            await lab.leader.unchanged(0, 0)
        assert (await commit(lab, second, await lab.write(second), {"records_tombstone": 2})).committed

    async def test_group_that_uncovers_no_record_is_committed_before_earlier_groups(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        _, second = await lab.begin(0, 1)
        assert (await commit(lab, second, await lab.write(second))).committed
        assert lab.readable() == [(0, 9), (10, 19), (20, 39)]
        assert lab.metadata.view(PARTITION).compacted_to is None

    async def test_erasure_in_a_topic_without_compaction_is_committed_before_earlier_groups(
        self, lab: LeaderLab
    ) -> None:
        await lab.copy_tier(0, 10)
        await lab.leader.prepare([lab.candidate(CleaningPolicy(), erased_keys=frozenset([b"k"]))])
        _, second = await lab.begin(0, 1)
        assert (await commit(lab, second, await lab.write(second), {})).committed

    async def test_erasure_in_a_compacted_topic_is_refused_while_earlier_groups_are_open(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        policy = CleaningPolicy(compacts=True, min_cleanable_dirty_ratio=1.0)
        await lab.leader.prepare([lab.candidate(policy, erased_keys=frozenset([b"k"]))])
        _, second = await lab.begin(0, 1)
        verdict = await commit(lab, second, await lab.write(second), {"records_erased": 1})
        assert not verdict.committed
        assert "records_erased: what they hide may still be there" in verdict.reason


class TestGroupsWithoutOutput:
    @pytest.mark.spec("log-format CLM-10")
    async def test_last_unchanged_group_makes_the_partition_clean(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        (first,) = await lab.begin(0)
        await commit(lab, first, await lab.write(first))
        await lab.leader.unchanged(0, 1)
        assert lab.metadata.view(PARTITION).compacted_to == 40
        assert not lab.being_copied

    async def test_open_output_of_an_unchanged_group_is_abandoned(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        await lab.begin(0)
        await lab.leader.unchanged(0, 0)
        assert lab.states() == {
            (0, 9): ["COPY_SEGMENT_FINISHED"],
            (0, 19): ["DELETE_SEGMENT_STARTED"],
            (10, 19): ["COPY_SEGMENT_FINISHED"],
        }

    async def test_partition_with_a_failed_group_stays_dirty(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        await lab.leader.failed(0, 0, "segment 0 is corrupt at position 7")
        await lab.leader.unchanged(0, 1)
        assert lab.metadata.view(PARTITION).compacted_to is None
        found = lab.leader.statistics()
        assert (found.failed, found.unchanged) == (1, 1)
        assert found.problems[0].problem == "segment 0 is corrupt at position 7"

    @pytest.mark.spec("log-format CLM-10")
    async def test_settled_group_cannot_be_settled_again(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        await lab.leader.unchanged(0, 0)
        with pytest.raises(WorkOrderError, match="group 0 is done already"):
            await lab.leader.failed(0, 0, "")
        await lab.leader.failed(0, 1, "")
        with pytest.raises(WorkOrderError, match="group 1 is left as it was already"):
            await lab.leader.unchanged(0, 1)
        with pytest.raises(WorkOrderError, match="no group 7"):
            await lab.leader.unchanged(0, 7)


class TestLeadership:
    async def test_groups_of_a_partition_that_moved_are_refused_and_others_are_committed(
        self, lab: LeaderLab, tmp_path: Path
    ) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.copy_tier(0, 10, partition=OTHER)
        await lab.leader.prepare([lab.candidate(), lab.candidate(partition=OTHER)])
        (moved,) = await lab.begin(0, index=0)
        (stays,) = await lab.begin(0, index=1)
        successor = LeaderLab(tmp_path, rows=lab.rows, objects=lab.objects, clock=lab.clock)
        await successor.lead(PARTITION, leader_epoch=6)
        refused = await commit(lab, moved, await lab.write(moved))
        assert "may not write" in refused.reason
        with pytest.raises(RemoteResourceNotFoundError):  # a rebuild accepts every manifest
            await lab.storage.read_manifest(moved.metadata)
        assert (await lab.leader.begin(0, [1])).refused[0].reason == refused.reason
        assert (await commit(lab, stays, await lab.write(stays))).committed
        assert successor.readable() == [(0, 9), (10, 19), (20, 29), (30, 39)]

    async def test_group_of_a_partition_that_is_no_longer_led_is_refused(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        manifest = await lab.write(output)
        lab.metadata.follow(PARTITION)
        assert not (await commit(lab, output, manifest)).committed


class TestMetadataFaults:
    @pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.DROP_REQUEST, Fault.FAIL])
    async def test_metadata_write_without_an_answer_is_resolved(
        self, lab: LeaderLab, rows: FaultyKeyValueStore, fault: Fault
    ) -> None:
        """The writes are the row of the output, the proof of leadership, and the replacement."""
        await lab.copy_tier(0, 10)
        await lab.prepare()
        rows.apply_faults.append(fault)
        (output,) = await lab.begin(0)
        manifest = await lab.write(output)
        rows.apply_faults.extend([fault, None, fault])
        assert (await commit(lab, output, manifest)).committed
        assert not rows.apply_faults
        assert lab.readable() == [(0, 19)]
        assert lab.metadata.view(PARTITION).compacted_to == 20

    @pytest.mark.parametrize("proven", [True, False])
    async def test_commit_is_refused_while_the_metadata_store_is_unreachable(
        self, lab: LeaderLab, rows: FaultyKeyValueStore, *, proven: bool
    ) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        manifest = await lab.write(output)
        rows.apply_faults.extend([*([None] if proven else []), *[Fault.FAIL] * 4])
        assert "refused for a test" in (await commit(lab, output, manifest)).reason
        assert lab.readable() == [(0, 9), (10, 19)]
        assert lab.in_state(DELETE_STARTED)[0].segment.id == output.metadata.segment.id

    async def test_output_whose_commit_is_in_doubt_is_not_abandoned(
        self, lab: LeaderLab, rows: FaultyKeyValueStore
    ) -> None:
        """The output may have replaced its inputs: its deletion would then delete the records."""
        await lab.copy_tier(0, 10)
        await lab.prepare()
        (output,) = await lab.begin(0)
        manifest = await lab.write(output)
        rows.apply_faults.extend([None, Fault.LOSE_ANSWER, Fault.FAIL, Fault.FAIL, Fault.FAIL])  # leadership is proven
        verdict = await commit(lab, output, manifest)
        assert "unknown whether it was committed" in verdict.reason
        await lab.leader.end()
        await lab.metadata.ensure_ready(PARTITION)
        assert lab.readable() == [(0, 19)]
        assert not lab.being_copied

    async def test_groups_whose_begin_failed_are_refused_and_released(
        self, lab: LeaderLab, rows: FaultyKeyValueStore
    ) -> None:
        await lab.copy_tier(0, 10)
        await lab.prepare()
        rows.apply_faults.extend([Fault.FAIL] * 4)
        assert (await lab.leader.begin(0, [0])).refused[0].reason == "refused for a test"
        assert not lab.being_copied


class TestEnd:
    @pytest.mark.spec("log-format CLN-25")
    async def test_end_of_a_run_abandons_open_outputs(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10, 20, 30)
        await lab.prepare()
        outputs = await lab.begin(0, 1)
        await lab.leader.end()
        assert {row.segment.id for row in lab.in_state(DELETE_STARTED)} == {o.metadata.segment.id for o in outputs}
        assert lab.abandoned == [output.metadata.segment.id for output in outputs]
        assert not lab.being_copied
        assert lab.leader.order is None

    async def test_end_of_a_run_keeps_the_marks_of_other_copies(self, lab: LeaderLab) -> None:
        theirs = uuid4()
        lab.being_copied.add(theirs)
        await lab.copy_tier(0, 10)
        await lab.prepare()
        await lab.leader.end()
        assert lab.being_copied == {theirs}
        lab.being_copied.clear()

    async def test_run_can_follow_the_end_of_another(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        first = await lab.prepare()
        await lab.leader.end()
        await lab.leader.end()
        second = await lab.prepare(replace(COMPACTED, segment_bytes=100))
        assert first.run_id != second.run_id
        assert first.secret == second.secret  # of the metadata store: hashes that a run has stored serve the next one
        assert len(await lab.begin(0, 1)) == 2

    async def test_run_goes_on_with_a_secret_of_its_own_if_the_stored_one_cannot_be_read(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.rows.create(lab.metadata.keys.key_secret_key, b"no row")
        first = await lab.prepare()
        await lab.leader.end()
        second = await lab.prepare()
        assert first.secret != second.secret
        assert await lab.rows.get(lab.metadata.keys.key_secret_key) == b"no row"


async def commit(
    lab: LeaderLab, output: Output, manifest: SegmentManifest, counts: dict[str, int] | None = None
) -> Verdict:
    told = NOTHING_HIDDEN if counts is None else counts
    return await lab.leader.commit(output.metadata.segment.id, manifest, told)


class TestAudit:
    """Audit: a round that reads segments and replaces none."""

    @pytest.fixture
    async def audited(self, lab: LeaderLab) -> list[RemoteLogSegmentMetadata]:
        """Return two neighbours of an order with only their audit."""
        segments = await lab.copy_tier(0, 10)
        prepared = await lab.leader.prepare([lab.candidate(CleaningPolicy())], audit_bytes=1 << 30)
        (work,) = prepared.order.partitions
        assert (work.kind, work.inputs, work.groups) == (WorkKind.AUDIT, tuple(segments), (Group(0, 0), Group(1, 1)))
        return segments

    async def test_audit_counts_sound_segments_and_changes_no_row(
        self, lab: LeaderLab, rows: FaultyKeyValueStore, audited: list[RemoteLogSegmentMetadata]
    ) -> None:
        before = dict(lab.metadata.view(PARTITION).segments)
        for group in (0, 1):
            await lab.leader.unchanged(0, group)
        found = lab.leader.statistics()
        assert (found.tally, found.groups) == (RunTally(audited_segments=2, audited_bytes=200), 0)
        assert lab.metadata.view(PARTITION).segments == before
        assert lab.metadata.view(PARTITION).compacted_to is None
        assert not lab.being_copied

    async def test_audit_protects_its_segments_from_expiration(
        self, lab: LeaderLab, audited: list[RemoteLogSegmentMetadata]
    ) -> None:
        assert lab.being_copied == {metadata.segment.id for metadata in audited}

    async def test_finding_of_an_audit_names_the_segment_and_the_command_to_run(
        self, lab: LeaderLab, audited: list[RemoteLogSegmentMetadata]
    ) -> None:
        await lab.leader.failed(0, 0, "3 batches, the manifest says 4")
        await lab.leader.failed(0, 1, f"{audited[1].segment}: there is no offset index")
        found = lab.leader.statistics()
        assert found.tally == RunTally(audited_segments=2, audited_bytes=200, damaged_segments=2)
        remedy = f"run tierd verify --deep {PARTITION.topic_partition}"
        assert [each.problem for each in found.problems] == [
            f"{audited[0].segment}: 3 batches, the manifest says 4; {remedy}",
            f"{audited[1].segment}: there is no offset index; {remedy}",
        ]

    async def test_segment_that_was_deleted_during_an_audit_is_no_finding(
        self, lab: LeaderLab, audited: list[RemoteLogSegmentMetadata]
    ) -> None:
        step = audited[0].advance(DELETE_STARTED, event_timestamp_ms=lab.clock.now_ms(), broker_id=1)
        await lab.metadata.update(step)
        await lab.leader.failed(0, 0, "no such object")
        found = lab.leader.statistics()
        assert (found.tally, found.problems) == (RunTally(), ())

    async def test_audit_refuses_to_begin_an_output(
        self, lab: LeaderLab, audited: list[RemoteLogSegmentMetadata]
    ) -> None:
        begun = await lab.leader.begin(0, [0])
        assert (begun.outputs, begun.refused[0].reason) == ((), "an audit replaces nothing")
        assert lab.readable() == [(0, 9), (10, 19)]

    async def test_audit_in_a_run_excludes_the_partitions_that_the_run_rewrites(self, lab: LeaderLab) -> None:
        await lab.copy_tier(0, 10)
        await lab.copy_tier(0, partition=OTHER)
        kept = lab.candidate(CleaningPolicy(), partition=OTHER)
        prepared = await lab.leader.prepare([lab.candidate(), kept], audit_bytes=1 << 30)
        found = [(work.partition, work.kind) for work in prepared.order.partitions]
        assert found == [(PARTITION, WorkKind.COMPACT), (OTHER, WorkKind.AUDIT)]
        assert lab.leader.statistics().groups == 1
