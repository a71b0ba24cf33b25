"""Reading of the target's log for batches that were sent: slow leaders, quotas, replicas that stay behind."""

from dataclasses import replace

import pytest

from tests.restore.live_cluster.model_leader import NAME, ModelCluster, ModelLeader
from tests.restore.live_cluster.test_delivery_window import numbered
from tests.restore.live_cluster.test_restore_progress import SENT
from tierd.control import FetchedRecords
from tierd.errors import KafkaError, KafkaUnreachableError
from tierd.log import NewRecord, Producer, encode_batch
from tierd.restore.live_cluster.target_log import own_batches, replicated_end, sent_batches

SLOW = FetchedRecords("", b"", 6, 0)
THROTTLED = FetchedRecords("", b"", -1, -1)
OWN, OTHER = 7, 8


def filled(*producers: int) -> ModelLeader:
    """Return a leader with batches of two records of these producers."""
    leader = ModelLeader()
    for number, producer in enumerate(producers):
        leader.forget()
        leader.append(encode_batch([NewRecord(None, b"value", 1)] * 2, producer=Producer(producer, 0, 2 * number)))
    return leader


@pytest.mark.parametrize("empty", [[SLOW], [SLOW] * 4, [THROTTLED], [THROTTLED] * 9, [SLOW, THROTTLED, SLOW]])
async def test_answer_without_records_is_not_the_end_of_the_log(empty: list[FetchedRecords]) -> None:
    leader = filled(OWN, OTHER, OWN)
    leader.empty_answers.extend(empty)

    found = await own_batches(ModelCluster(leader), NAME, OWN, from_offset=0)

    assert [(each.base_offset, each.base_sequence, each.span) for each in found] == [(0, 0, 2), (4, 4, 2)]


async def test_batches_above_the_high_watermark_are_waited_for() -> None:
    leader = filled(OWN, OWN)
    leader.unreplicated.extend([4, 2, 2])

    assert await replicated_end(ModelCluster(leader), NAME) == 4
    assert not leader.unreplicated


async def test_end_of_a_log_that_a_new_leader_has_cut_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = filled(OWN, OWN)
    leader.unreplicated.extend([2])
    target = ModelCluster(leader)
    sleep = target.clock.sleep

    async def elected(delay_s: float) -> None:
        leader.cut(1)
        await sleep(delay_s)

    monkeypatch.setattr(target.clock, "sleep", elected)

    assert await replicated_end(target, NAME) == 2


async def test_replicas_that_stay_behind_for_longer_than_the_patience_are_an_error() -> None:
    leader = filled(OWN)
    leader.unreplicated.extend([1] * 10_000)

    with pytest.raises(KafkaUnreachableError, match="not_enough_replicas"):
        await replicated_end(ModelCluster(leader), NAME)


async def test_batches_that_the_progress_counts_are_not_among_those_that_were_sent() -> None:
    leader = filled(OWN, OWN, OWN, OWN)
    leader.remove(1, 2)  # the last one that was acknowledged
    progress = replace(SENT, sequence=4, target_offset=0)

    found = await sent_batches(ModelCluster(leader), NAME, progress)

    assert [found.match(replace(numbered(sequence), record_count=2, max_timestamp_ms=1)) for sequence in (4, 6)] == [
        4,
        6,
    ]
    assert not found


async def test_target_without_the_batch_that_it_had_acknowledged_has_lost_records() -> None:
    with pytest.raises(KafkaError, match="lost restored records"):
        await sent_batches(ModelCluster(filled(OTHER)), NAME, replace(SENT, target_offset=0))
