"""Copied segments of a log that was cut back within one leader epoch, and of logs that only look like one."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.fakes.log_dirs import PartitionWriter
from tests.tiering.copying.cut_back_lab import BATCH_RECORDS, SEGMENT_RECORDS, CutBackLab
from tests.tiering.setups import delete_segment
from tierd.errors import RefusedError, RetriableRemoteStorageError
from tierd.log import NewRecord, encode_batch, iter_batches
from tierd.model import Lineage, RemoteLogSegmentState
from tierd.tiering import TopicPolicy
from tierd.tiering.copying.stale_segments import DIVERGED_GRACE_S
from tierd.tiering.removing.expiring.partition_expiration import LocalFacts
from tierd.tiering.removing.undelete_plan import plan_undelete, refuse

COMPACTED = TopicPolicy(cleanup_policy=frozenset({"compact"}))


@pytest.fixture
def lab(tmp_path: Path) -> CutBackLab:
    return CutBackLab(tmp_path)


async def test_log_that_grew_again_over_copied_offsets_is_copied_again(lab: CutBackLab) -> None:
    lab.segments(5)
    await lab.run()
    lab.lose_from(16)  # inside the third segment
    lab.segments(4)

    outcome = await lab.run()

    assert outcome.error is None
    assert lab.ended == [(12, 17), (18, 23), (24, 29)]
    assert lab.finished[:2] == [(0, 5), (6, 11)]
    assert await lab.read_tier_only(1000) == lab.values
    assert await lab.read() == lab.values
    rows = [m for m in lab.session.rows(lab.partition) if m.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED]
    soft = [m.soft_delete for m in rows]
    assert all(each is not None and each.reason == "diverged" for each in soft)
    grace_ms = {each.delete_after_ms - m.event_timestamp_ms for each, m in zip(soft, rows, strict=True) if each}
    assert grace_ms == {round(DIVERGED_GRACE_S * 1000)}


async def test_log_that_was_cut_back_while_tierd_was_down_is_compared_at_start(lab: CutBackLab) -> None:
    lab.segments(4)
    await lab.run()
    lab.lose_from(12)
    lab.segments(4)
    lab.start()

    await lab.run()

    assert lab.ended == [(12, 17), (18, 23)]
    assert await lab.read_tier_only(1000) == lab.values


async def test_readers_see_the_local_log_that_ends_below_the_copied_offsets(lab: CutBackLab) -> None:
    lab.segments(4)
    await lab.run()
    lab.lose_from(14)
    await lab.run()
    assert lab.ended == [(12, 17), (18, 23)]
    assert await lab.read() == lab.values


async def test_log_that_ends_below_the_copied_offsets_counts_once_the_broker_confirms_its_end(lab: CutBackLab) -> None:
    """Files in restoration, or before the recovery by a broker, do not end copied segments."""
    lab.segments(4)
    await lab.run()
    lab.lose_from(14, is_told=False)
    outcome = await lab.run()
    assert outcome.error is None
    assert lab.ended == []
    lab.log_dir.write_checkpoints()
    await lab.run()
    assert lab.ended == [(12, 17), (18, 23)]


async def test_empty_log_of_a_new_disk_ends_no_copied_segment(lab: CutBackLab) -> None:
    lab.segments(3)
    await lab.run()
    lab.lose_from(0)
    await lab.run()
    assert lab.ended == []
    assert len(lab.finished) == 3


async def test_loss_of_records_that_were_not_copied_ends_no_segment_and_fetches_none(lab: CutBackLab) -> None:
    lab.segments(3)
    lab.produce(2)
    lab.log_dir.write_checkpoints()
    await lab.run()
    lab.lose_from(18)
    lab.segments(2)
    await lab.run()
    assert (lab.ended, lab.storage.fetches) == ([], 0)
    assert await lab.read_tier_only(1000) == lab.values


async def test_same_records_that_were_appended_again_are_the_same_history(lab: CutBackLab) -> None:
    lab.segments(3)
    await lab.run()
    written, values = lab._written, list(lab.values)
    lab.lose_from(12)
    lab._written = written - SEGMENT_RECORDS
    lab.segments(1)
    assert lab.values == values
    await lab.run()
    assert lab.ended == []


@pytest.mark.parametrize("dropped", [(0,), (1,), (0, 2), (0, 1, 2)])
async def test_cleaned_local_segments_are_the_same_history(lab: CutBackLab, dropped: Sequence[int]) -> None:
    lab.segments(3)
    await lab.run()
    for log in sorted(lab.path.glob("*.log"))[:-1]:
        batches = list(iter_batches(log.read_bytes(), name=str(log)))
        cleaned = log.with_suffix(".cleaned")
        cleaned.write_bytes(b"".join(bytes(b.data) for n, b in enumerate(batches) if n not in dropped))
        log.with_suffix(".index").write_bytes(b"")
        cleaned.replace(log)
    await lab.run()
    lab.start()
    await lab.run()
    assert lab.ended == []


async def test_cleaned_batches_with_fewer_records_are_the_same_history(lab: CutBackLab) -> None:
    lab.segments(2)
    await lab.run()
    log = lab.path / f"{6:020d}.log"
    kept = []
    for batch in iter_batches(log.read_bytes(), name=str(log)):
        last = list(batch.records())[-1]
        one = bytearray(encode_batch([NewRecord(last.key, last.value, last.timestamp_ms)], base_offset=last.offset))
        kept.append(bytes(one))
    other = log.with_suffix(".cleaned")
    other.write_bytes(b"".join(kept))
    log.with_suffix(".index").write_bytes(b"")
    other.replace(log)
    await lab.run()
    assert lab.ended == []
    assert lab.storage.fetches == 1


async def test_segment_whose_first_records_are_only_in_the_tier_is_kept(lab: CutBackLab) -> None:
    lab.segments(1)
    lab.produce(6)
    lab.writer.roll()
    lab.log_dir.write_checkpoints()
    await lab.run()
    assert lab.finished == [(0, 5), (6, 17)]
    # the local log restarts inside the second segment, with other records
    for base in (0, 6, 18):
        delete_segment(lab.path, base)
    fresh = PartitionWriter(
        lab.path.parent.parent / "other",
        lab.partition.topic_partition,
        topic_id=lab.partition.topic_id,
        first_offset=12,
    )
    fresh.append([b"other", b"other"])
    fresh.append([b"other"] * 8)
    for file in fresh.path.iterdir():
        file.replace(lab.path / file.name)
    await lab.run()
    assert lab.ended == []


async def test_unreachable_store_keeps_segments_held_and_ends_no_copied_segment(lab: CutBackLab) -> None:
    lab.segments(3)
    await lab.run()
    lab.lose_from(12)
    lab.segments(3)
    lab.storage.is_away = True
    outcome = await lab.run()
    assert isinstance(outcome.error, RetriableRemoteStorageError)
    assert lab.session.hold.statistics().segments >= 3
    lab.storage.is_away = False
    outcome = await lab.run()
    assert outcome.error is None
    assert await lab.read_tier_only(1000) == lab.values


async def test_log_at_rest_is_compared_at_most_once(lab: CutBackLab) -> None:
    lab.segments(3)
    await lab.run()
    lab.start()
    os.utime(lab.path / f"{12:020d}.log", ns=(1, 2 * 10**18))  # as if the file had been touched later
    for _ in range(3):
        await lab.run()
    assert lab.storage.fetches == 1


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_tier_and_local_log_together_hold_the_whole_log_after_random_losses(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The log has one epoch; it appends, rolls, is copied, loses unflushed records, and grows again."""
    asyncio.run(_play(CutBackLab(tmp_path_factory.mktemp("lab")), data))


async def _play(lab: CutBackLab, data: st.DataObject) -> None:
    lab.segments(1)
    steps = data.draw(st.lists(st.sampled_from("aarrccccls"), min_size=5, max_size=30))
    for step in steps:
        if step == "a":
            lab.produce(data.draw(st.integers(1, 4)))
        elif step == "r" and lab.writer.active_segment.stat().st_size:
            lab.writer.roll()
        elif step == "c":
            lab.log_dir.write_checkpoints()
            outcome = await lab.run()
            assert outcome.error is None
        elif step == "l" and lab.values:
            first = data.draw(st.integers(1, len(lab.values) // BATCH_RECORDS))
            lab.lose_from(first * BATCH_RECORDS, is_told=False)
        elif step == "s":
            lab.start()
    lab.segments(2)
    outcome = await lab.run()
    assert outcome.error is None
    assert await lab.read() == lab.values
    tier = await lab.read_tier_only(1000)
    assert tier == lab.values[: len(tier)]
    assert len(tier) == len(lab.values), "all has rolled"


async def test_deep_verify_names_a_record_that_differs_in_the_local_log(lab: CutBackLab) -> None:
    lab.segments(4)
    await lab.run()
    lab.lose_from(14)
    lab.segments(3)

    found = await lab.session.findings(lab.path)

    assert [(each.kind, each.what) for each in found] == [
        ("diverged-log", "the local log has another record at offset 14: it lost this one"),
        ("diverged-log", "the local log has another record at offset 18: it lost this one"),
    ]
    await lab.run()
    assert await lab.session.findings(lab.path) == []


async def test_deep_verify_ignores_records_above_the_high_watermark_of_a_replica(lab: CutBackLab) -> None:
    lab.segments(4)
    await lab.run()
    lab.lose_from(14)
    lab.log_dir.write_checkpoints()
    lab.produce(20)
    assert await lab.session.findings(lab.path) == []


async def test_undelete_restores_a_segment_that_the_log_lost_only_by_name_and_force(lab: CutBackLab) -> None:
    lab.segments(3)
    await lab.run()
    lab.lose_from(12)
    lab.segments(2)
    await lab.run()
    view, local = lab.session.metadata.view(lab.partition), LocalFacts(Lineage(), 24, 24)
    (ended,) = (m for m in lab.session.rows(lab.partition) if m.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    assert plan_undelete(view, local, lambda _: TopicPolicy(), None, now_ms=0) == ()
    (taken,) = plan_undelete(view, local, lambda _: TopicPolicy(), [ended.segment.id], now_ms=0)
    with pytest.raises(RefusedError, match="lost these records"):
        refuse([taken], force=False)


async def test_listing_older_than_the_tier_ends_no_copied_segment(lab: CutBackLab) -> None:
    """A replica that begins to lead has its last listing and a high watermark of some seconds ago."""
    lab.segments(2)
    late = lab.start()
    await late.manager.discover_once()
    lab.segments(3)
    lab.start()
    await lab.run()
    assert len(lab.finished) == 5
    (lab.log_dir.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 12\n")

    (replica,) = late.tiering.replicas.all()
    assert replica.tasks.copy is not None
    await replica.tasks.copy.run_once()

    lab.session = late
    assert lab.ended == []


async def test_segment_that_the_log_start_lay_inside_is_compared(lab: CutBackLab) -> None:
    lab.segments(3)
    (lab.log_dir.path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 14\n")
    lab.writer.forget_epochs_below(14)
    await lab.run()
    assert lab.finished[-1] == (12, 17)
    assert lab.session.rows(lab.partition)[-1].first_readable_offset == 14
    lab.lose_from(16)
    lab.segments(2)

    assert [each.kind for each in await lab.session.findings(lab.path)] == ["diverged-log"]
    await lab.run()

    assert lab.ended == [(12, 17)]
    assert await lab.session.findings(lab.path) == []
    assert await lab.read() == lab.values[14:]


async def test_hole_in_the_tier_is_reported_to_the_log_before_its_records_are_copied_again(lab: CutBackLab) -> None:
    """Retention of the log may delete records below the reported offset; those of the hole are only in the log."""
    lab.segments(4)
    await lab.run()
    assert lab.told.told[-1] == (23, 0)
    await lab.take_away(6)
    lab.lose_from(20)
    lab.segments(2)
    lab.told.told.clear()

    await lab.run()

    assert lab.told.told[0] == (5, 0)
    assert lab.told.told[-1] == (lab.finished[-1][1], 0)
    assert await lab.read_tier_only(1000) == lab.values


async def test_log_start_that_rose_since_the_leadership_began_leaves_no_hole_below_it(lab: CutBackLab) -> None:
    lab.segments(4)
    await lab.run()
    await lab.session.metadata.advance_log_start_offset(lab.partition, 12)
    await lab.take_away(0)
    await lab.take_away(6)
    lab.lose_from(20)
    lab.segments(1)
    lab.session.recorder.copied.clear()

    await lab.run()

    assert lab.finished[0] == (12, 17)
    assert len(lab.session.recorder.copied) == 1


async def test_hole_that_the_log_start_has_passed_does_not_hold_back_the_retention_of_the_log(lab: CutBackLab) -> None:
    lab.segments(4)
    await lab.run()
    await lab.take_away(6)
    lab.start()
    lab.session.manager.pause()
    await lab.run()
    assert lab.told.told[-1] == (5, 0)
    await lab.session.metadata.advance_log_start_offset(lab.partition, 12)

    await lab.run()

    assert lab.told.told[-1] == (23, 0)


async def test_segment_of_another_size_is_compared_regardless_of_its_timestamps(lab: CutBackLab) -> None:
    """An undelete, a compaction and an adoption date a row later than the copy that it came from."""
    lab.segments(3)
    await lab.run()
    lab.lose_from(12)
    lab._written = 1000  # longer values
    lab.segments(1)
    os.utime(lab.path / f"{12:020d}.log", ns=(1, 1))
    lab.start()

    await lab.run()

    assert lab.ended == [(12, 17)]
    assert await lab.read_tier_only(1000) == lab.values


@pytest.mark.parametrize("elects", [True, False], ids=["in-another-epoch", "within-the-epoch"])
@pytest.mark.parametrize("regrown", [0, 4])
async def test_log_that_was_cut_below_what_was_compacted_is_reported_until_the_tier_is_beyond(
    lab: CutBackLab, elects: bool, regrown: int
) -> None:
    lab.segments(4)
    await lab.run()
    await lab.session.metadata.advance_compacted_to(lab.partition, 24)
    lab.lose_from(14)
    if elects:
        lab.writer.begin_epoch(1)
    lab.segments(regrown)
    lab.start(COMPACTED)
    with capture_logs() as lines:
        assert (await lab.run()).error is None
        assert (await lab.run()).error is None
    told = [line for line in lines if line["event"] == "log_cut_below_compaction"]
    lost_from = 14 if elects or not regrown else 12
    assert [(line["lost_from_offset"], line["compacted_to"]) for line in told] == [(lost_from, 24)]


async def test_log_that_has_all_that_was_compacted_is_not_reported_as_cut(lab: CutBackLab) -> None:
    lab.segments(4)
    lab.produce(1)
    await lab.run()
    await lab.session.metadata.advance_compacted_to(lab.partition, 24)
    await lab.take_away(18)  # it is copied again
    lab.start(COMPACTED)
    with capture_logs() as lines:
        await lab.run()
    assert "log_cut_below_compaction" not in {line["event"] for line in lines}
