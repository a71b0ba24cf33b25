"""Copies that a longer copy covers, as after the cleaner of the broker has merged copied segments with a new one."""

from dataclasses import replace

import pytest

from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, segment, step
from tests.tiering.removing.rows import NOW_MS, SIZE
from tierd.metadata import Claim, PartitionRow, PartitionView
from tierd.model import Lineage, RemoteLogSegmentMetadata, SoftDelete
from tierd.tiering.removing.expiring.branch_segments import LocalSegment
from tierd.tiering.removing.expiring.expiration_plan import ExpirationPlan
from tierd.tiering.removing.expiring.partition_expiration import LocalFacts, partition_expiration
from tierd.tiering.removing.ledger import DeleteReason
from tierd.tiering.removing.undelete_plan import plan_undelete
from tierd.tiering.topic_policy import TopicPolicy

SHORT = (segment(0, 99), segment(100, 199))
LONG, LATER = segment(0, 299), segment(300, 399)
LOCAL = LocalFacts(Lineage.of([(0, 0)]), log_end_offset=500, high_watermark=500)
COMPACTED = TopicPolicy(cleanup_policy=frozenset({"compact"}))


def view_of(*segments: RemoteLogSegmentMetadata, log_start_offset: int = 0) -> PartitionView:
    """Return a view in which the segments were copied one after the other."""
    view = PartitionView(PARTITION)
    for metadata in segments:
        view = view.with_added(metadata).view.with_updated(step(metadata, FINISHED)).view
    row = PartitionRow(
        topic="orders", revision=1, claim=Claim(5, 1, LONG.session_id), log_start_offset=log_start_offset
    )
    return replace(view, row=row)


def planned(
    view: PartitionView, policy: TopicPolicy = COMPACTED, *, strict_kafka_compat: bool = False
) -> ExpirationPlan:
    return partition_expiration(
        view, LOCAL, policy, being_copied=(), now_ms=NOW_MS, strict_kafka_compat=strict_kafka_compat
    )


def chosen(plan: ExpirationPlan) -> list[tuple[int, int, DeleteReason]]:
    return [(p.metadata.start_offset, p.metadata.end_offset, p.reason) for p in plan.deletions]


def test_copies_that_a_longer_one_covers_are_deleted_and_the_log_start_stays() -> None:
    plan = planned(view_of(*SHORT, LONG, LATER))
    assert chosen(plan) == [(0, 99, DeleteReason.COVERED), (100, 199, DeleteReason.COVERED)]
    assert plan.new_log_start_offset is None


def test_bytes_of_covered_copies_do_not_count_for_retention() -> None:
    policy = TopicPolicy(cleanup_policy=frozenset({"compact", "delete"}), retention_bytes=2 * SIZE)
    assert planned(view_of(*SHORT, LONG, LATER), policy).new_log_start_offset is None
    smaller = replace(policy, retention_bytes=SIZE)
    assert planned(view_of(*SHORT, LONG, LATER), smaller).new_log_start_offset == 300


def test_copy_whose_cover_is_being_deleted_is_kept() -> None:
    view = view_of(*SHORT, LONG, LATER)
    assert chosen(planned(view.with_updated(step(LONG, DELETE_STARTED)).view)) == [(0, 299, DeleteReason.DELETE_RETRY)]


def test_copy_that_readers_use_in_part_is_kept() -> None:
    overlapping = segment(50, 350)
    assert chosen(planned(view_of(*SHORT, overlapping))) == [(100, 199, DeleteReason.COVERED)]


def test_copy_whose_cover_continues_an_abandoned_branch_is_kept() -> None:
    """The producer snapshot of the covered copy is still needed: it shows how far transactions are decided."""
    local = replace(LOCAL, lineage=Lineage.of([(0, 0), (1, 250)]))
    plan = partition_expiration(view_of(*SHORT, LONG), local, COMPACTED, being_copied=(), now_ms=NOW_MS)
    assert chosen(plan) == []


def test_covered_copy_below_the_log_start_is_deleted() -> None:
    plan = planned(view_of(*SHORT, LONG, LATER, log_start_offset=100))
    assert chosen(plan) == [(0, 99, DeleteReason.COVERED), (100, 199, DeleteReason.COVERED)]


def test_covered_copy_that_is_being_copied_or_rewritten_is_kept() -> None:
    plan = partition_expiration(
        view_of(*SHORT, LONG), LOCAL, COMPACTED, being_copied={SHORT[0].segment.id}, now_ms=NOW_MS
    )
    assert chosen(plan) == [(100, 199, DeleteReason.COVERED)]


def test_covered_copies_are_kept_with_strict_kafka_compat() -> None:
    assert chosen(planned(view_of(*SHORT, LONG, LATER), strict_kafka_compat=True)) == []


@pytest.mark.parametrize("is_named", [True, False])
def test_undelete_of_all_segments_leaves_out_covered_copies(*, is_named: bool) -> None:
    view = view_of(*SHORT, LONG)
    gone = step(SHORT[0], DELETE_STARTED)
    gone = replace(gone, soft_delete=SoftDelete(DeleteReason.COVERED, NOW_MS + 1))
    view = view.with_updated(gone).view
    wanted = [SHORT[0].segment.id] if is_named else None
    back = plan_undelete(view, LOCAL, lambda _: COMPACTED, wanted, now_ms=NOW_MS)
    assert [each.problem for each in back] == (
        ["retention would delete it again at once: covered, readers use another segment for all of its offsets"]
        if is_named
        else []
    )


@pytest.mark.parametrize("strict_kafka_compat", [False, True])
@pytest.mark.parametrize("active_base", [100, 300, 400, 500])
def test_plan_needs_of_local_segments_without_sizes_the_active_one_alone(
    active_base: int, *, strict_kafka_compat: bool
) -> None:
    view, active = view_of(*SHORT, LONG, LATER), LocalSegment(active_base, None, 0)
    policy = TopicPolicy(retention_ms=1)
    plans = [
        partition_expiration(
            view,
            replace(LOCAL, segments=segments),
            policy,
            being_copied=(),
            now_ms=NOW_MS,
            strict_kafka_compat=strict_kafka_compat,
        )
        for segments in ((active,), (LocalSegment(0, 50, 0), LocalSegment(50, active_base, 0), active))
    ]
    assert plans[0] == plans[1]
    assert plans[0].deletions or strict_kafka_compat
