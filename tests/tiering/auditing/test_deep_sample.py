"""Samples of a deep check: a share of every partition, the same for a seed, and what they leave out is not read."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, segment
from tests.tiering.auditing.audited import Audited
from tierd.cli.commands.verify import _share_of
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition
from tierd.tiering import DeepSample
from tierd.tiering.auditing.deep_sample import SampleStatistics


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(UUID(int=7), "orders", number)


def rows(number: int, count: int) -> list[RemoteLogSegmentMetadata]:
    """Return finished segments of 100 bytes; no two of any partition have the same id."""
    made = [
        segment(
            at * 10, at * 10 + 9, partition=partition(number), segment_id=UUID(int=number << 32 | at), size_bytes=100
        )
        for at in range(count)
    ]
    return [replace(each, state=FINISHED) for each in made]


def taken(sample: DeepSample, counts: dict[int, int]) -> set[UUID]:
    """Check partitions with so many segments each, one after the other; return the ids that were taken."""
    found = set()
    for number, count in counts.items():
        mine = rows(number, count)
        sample.open(partition(number), mine)
        found |= {row.segment.id for row in mine if sample.takes(row)}
    return found


@given(
    st.dictionaries(st.integers(0, 50), st.integers(0, 12), max_size=12), st.floats(0, 1), st.integers(0, 1_000_000_000)
)
def test_each_partition_gives_its_share_rounded_down_or_up(counts: dict[int, int], share: float, seed: int) -> None:
    found = taken(DeepSample(share, seed=seed), counts)

    for number, count in counts.items():
        chosen = sum(each.int >> 32 == number for each in found)
        assert int(share * count) <= chosen <= min(int(share * count) + 1, count)


@given(st.permutations(range(8)), st.integers(0, 1000))
def test_seed_alone_decides_what_is_taken_whatever_the_order_of_partitions(order: list[int], seed: int) -> None:
    counts = dict.fromkeys(order, 6)

    assert taken(DeepSample(0.25, seed=seed), counts) == taken(
        DeepSample(0.25, seed=seed), dict(sorted(counts.items()))
    )


def test_many_small_partitions_together_give_the_share() -> None:
    sample = DeepSample(0.05, seed=1)

    taken(sample, dict.fromkeys(range(2000), 1))

    statistics = sample.statistics()
    assert (statistics.segments, statistics.size_bytes) == (2000, 200_000)
    assert 70 <= statistics.taken_segments <= 130
    assert statistics.taken_bytes == 100 * statistics.taken_segments


def test_other_seeds_take_other_segments_until_all_were_taken() -> None:
    found = [taken(DeepSample(0.5, seed=seed), {0: 10}) for seed in range(20)]

    assert {len(each) for each in found} == {5}
    assert len(set.union(*found)) == 10


def test_share_of_one_takes_every_finished_segment_and_no_other_row() -> None:
    sample = DeepSample(1.0)
    finished, deleting = rows(0, 1)[0], replace(rows(0, 2)[1], state=DELETE_STARTED)
    sample.open(partition(0), [finished, deleting])

    assert [sample.takes(row) for row in (finished, deleting, None)] == [True, False, False]
    assert sample.statistics() == SampleStatistics(1, 100, 1, 100)


async def test_audit_reads_the_bytes_of_the_sample_alone(tmp_path: Path) -> None:
    tier = Audited(tmp_path, rolled_segments=6)
    await tier.session.copy_once()
    for info in await tier.objects(".indexes"):
        content = await tier.tier.store.get(info.key)
        await tier.overwrite(info.key, bytes(byte ^ 0x55 for byte in content))

    found = [await _damaged(tier, DeepSample(0.5, seed=seed)) for seed in (1, 1, 2, 3, 4)]

    assert [len(each) for each in found] == [3] * 5
    assert found[0] == found[1]
    assert len(set.union(*found)) > 3


async def _damaged(tier: Audited, sample: DeepSample) -> set[str]:
    reports = [report async for report in tier.audit().run(deep=sample)]
    return {finding.where for report in reports for finding in report.findings}


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), ("100%", 1.0), ("1", 1.0), ("2.5%", 0.025)])
def test_share_is_written_in_percent_or_as_a_number(text: str, share: float) -> None:
    assert _share_of(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["0", "0%", "101%", "-5%", "five", "", "%", "nan", "inf"])
def test_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="write a share"):
        _share_of(text)
