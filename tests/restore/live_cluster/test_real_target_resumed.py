"""Later runs of restores of single topics into a real broker: what a killed run and other writers left there."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.logs import lead, records
from tests.restore.live_cluster.restoring import BEGUN, Restoring, copied, plan_of
from tests.restore.log_dir.lab import closed, new_log
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_records import SentRecord
from tests.services.waiting import wait_until
from tierd.clock import SystemClock
from tierd.control import TopicLeaders, describe_topic_configs
from tierd.errors import (
    KafkaError,
    RefusedError,
)
from tierd.model import RemoteLogSegmentMetadata

pytestmark = pytest.mark.service("kafka")


async def test_run_that_was_killed_before_its_first_step_finds_its_records_in_the_target(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    plan = plan_of(restoring, await copied(restoring, tmp_path))
    assert (await restoring.run(plan)).problem is None
    restored, ranges = cluster.consume_all([(restoring.name, 0)]), restoring.ranges()
    assert ranges == [(0, 60, 0)]
    restoring.lose_steps()

    assert (await restoring.run(plan)).problem is None

    assert cluster.consume_all([(restoring.name, 0)]) == restored
    assert restoring.ranges() == ranges


async def test_run_that_would_cut_batches_elsewhere_than_the_run_before_is_refused(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    segments = await copied(restoring, tmp_path)
    first = plan_of(restoring, segments, end_offset=33)
    assert (await restoring.run(first)).problem is None
    restoring.lose_steps()
    begun = json.loads(restoring.journal.read_text().splitlines()[BEGUN - 1])
    lines = restoring.journal.read_text().splitlines()[: BEGUN - 1]
    restoring.journal.write_text("\n".join([*lines, json.dumps(begun | {"end_offset": 60})]) + "\n")

    outcome = await restoring.run(plan_of(restoring, segments))

    # The run that was cut at 33 sent half of a batch, which this run does not make: it must not guess.
    assert isinstance(outcome.problem, RefusedError)
    assert "the tier has changed" in str(outcome.problem)
    assert cluster.end_offset(restoring.name, 0) == 33


async def test_run_continues_behind_the_batches_of_the_run_before(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    segments = await copied(restoring, tmp_path)
    assert (await restoring.run(plan_of(restoring, segments, end_offset=34))).problem is None
    restoring.lose_steps()
    text = restoring.journal.read_text()
    restoring.journal.write_text(text.replace('"end_offset":34', '"end_offset":60'))

    assert (await restoring.run(plan_of(restoring, segments))).problem is None

    assert restoring.ranges() == [(0, 60, 0)]
    assert cluster.end_offset(restoring.name, 0) == 60


async def test_records_of_other_writers_stay_and_are_left_out_of_the_map(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    cluster.create_topic(restoring.name)
    other = [SentRecord(key=b"other", value=b"writer", timestamp_ms=5)] * 7

    def write() -> None:
        with cluster.producer() as producer:
            producer.send(restoring.name, 0, other)

    write()
    segments = await copied(restoring, tmp_path)
    plan = plan_of(restoring, segments, end_offset=34)
    assert (await restoring.run(plan, may_exist=True)).problem is None
    write()
    restoring.lose_steps(2)
    text = restoring.journal.read_text()
    restoring.journal.write_text(text.replace('"end_offset":34', '"end_offset":60'))

    assert (await restoring.run(plan_of(restoring, segments), may_exist=True)).problem is None

    assert restoring.ranges() == [(0, 34, 7), (34, 26, 48)]
    assert cluster.end_offset(restoring.name, 0) == 74


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_topic_that_was_deleted_since_is_not_called_restored(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path, is_made_again: bool
) -> None:
    plan = plan_of(restoring, await copied(restoring, tmp_path))
    assert (await restoring.run(plan)).problem is None
    cluster.delete_topic(restoring.name)
    if is_made_again:
        cluster.create_topic(restoring.name)

    with pytest.raises(RefusedError, match="was deleted") as refused:
        await restoring.run(plan)

    assert "--journal" in refused.value.remedy


async def test_topic_whose_deletion_a_broker_learns_late_is_not_waited_for(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(restoring, await copied(restoring, tmp_path))
    assert (await restoring.run(plan)).problem is None
    leaders = restoring.target.leaders

    async def leaders_before_the_deletion(topics: Collection[str]) -> Mapping[str, TopicLeaders]:
        before = found = await leaders(topics)
        if restoring.name in before:
            await asyncio.to_thread(cluster.delete_topic, restoring.name)
            async with asyncio.timeout(60):
                while restoring.name in found:
                    found = await leaders(topics)
        return before

    monkeypatch.setattr(restoring.target, "leaders", leaders_before_the_deletion)
    with pytest.raises(RefusedError, match="was deleted"):
        await restoring.run(plan)


async def test_run_behind_a_finished_one_leaves_the_target_as_it_is(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    plan = plan_of(restoring, await copied(restoring, tmp_path))
    assert (await restoring.run(plan)).problem is None
    with cluster.producer() as producer:
        producer.send(restoring.name, 0, [SentRecord(key=b"other", value=b"writer", timestamp_ms=5)])

    assert (await restoring.run(plan)).problem is None

    assert cluster.end_offset(restoring.name, 0) == 61
    assert restoring.ranges() == [(0, 60, 0)]


async def test_retention_is_held_also_by_a_later_run(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    plan = plan_of(restoring, await copied(restoring, tmp_path))
    settings = {"retention.ms": "3600000000000"}
    assert (await restoring.run(plan, config=settings)).problem is None
    restoring.lose_steps()

    assert (await restoring.run(plan, config=settings, holds_retention=True)).problem is None

    request = describe_topic_configs([restoring.name], ["retention.ms"])
    (found,) = await restoring.target.ask(request)
    assert found.settings == {"retention.ms": "-1"}
    assert cluster.end_offset(restoring.name, 0) == 60


async def test_records_that_the_target_deleted_end_the_restore(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    segments = await copied(restoring, tmp_path)
    assert (await restoring.run(plan_of(restoring, segments, end_offset=40))).problem is None
    restoring.lose_steps(BEGUN + 1)
    text = restoring.journal.read_text()
    restoring.journal.write_text(text.replace('"end_offset":40', '"end_offset":60'))
    cluster.delete_records(restoring.name, 0, 40)

    outcome = await restoring.run(plan_of(restoring, segments))

    assert isinstance(outcome.problem, KafkaError)
    assert "lost restored records" in str(outcome.problem)
    assert cluster.end_offset(restoring.name, 0) == 40


async def test_run_is_not_resumed_after_the_brokers_forgot_its_producer(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    plan = plan_of(restoring, await copied(restoring, tmp_path))
    assert (await restoring.run(plan)).problem is None
    restoring.lose_steps()
    restoring.begin_earlier(hours=24)

    outcome = await restoring.run(plan)

    assert isinstance(outcome.problem, RefusedError)
    assert "forget a producer after 1440 minutes" in str(outcome.problem)
    assert cluster.end_offset(restoring.name, 0) == 60


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_run_is_not_resumed_over_segments_that_may_have_lost_tombstones_since(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path, *, is_replaced: bool
) -> None:
    segments = await copied(restoring, tmp_path)
    plan = replace(plan_of(restoring, segments, end_offset=34), is_compacted=True)
    assert (await restoring.run(plan)).problem is None
    restoring.lose_steps(BEGUN + 1)  # the first 34 offsets are done
    restoring.begin_earlier(hours=3)
    text = restoring.journal.read_text()
    restoring.journal.write_text(text.replace('"end_offset":34', '"end_offset":60'))
    if is_replaced:
        now_ms = SystemClock().now_ms()
        segments = [*segments[:2], replace(segments[2], event_timestamp_ms=now_ms)]
    plan = replace(plan_of(restoring, segments), is_compacted=True)

    outcome = await restoring.run(plan, delete_retention_ms=2 * 3_600_000)

    assert cluster.end_offset(restoring.name, 0) == (34 if is_replaced else 60)
    assert isinstance(outcome.problem, RefusedError) is is_replaced
    assert "keys that were deleted could come back" in str(outcome.problem) or not is_replaced


async def test_run_that_was_killed_at_any_line_of_its_journal_is_resumed_without_a_record_twice(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    plan = plan_of(restoring, await copied(restoring, tmp_path))
    assert (await restoring.run(plan)).problem is None
    lines = restoring.journal.read_bytes().splitlines(keepends=True)
    assert [json.loads(line).get("step") for line in lines[1:]] == ["create", "begin", "sent", "done", "configured"]
    restored = cluster.consume_all([(restoring.name, 0)])

    for kept in range(BEGUN, len(lines)):
        for half in (b"", lines[kept][: len(lines[kept]) // 2]):
            restoring.journal.write_bytes(b"".join(lines[:kept]) + half)

            assert (await restoring.run(plan)).problem is None

            assert restoring.ranges() == [(0, 60, 0)]
            assert cluster.consume_all([(restoring.name, 0)]) == restored


@pytest.mark.parametrize("is_created", [False, True])
async def test_run_that_was_killed_at_the_creation_of_its_topic_is_resumed(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path, *, is_created: bool
) -> None:
    with restoring.progress() as progress:
        await progress.create(restoring.name)
    if is_created:
        cluster.create_topic(restoring.name)

    outcome = await restoring.run(plan_of(restoring, await copied(restoring, tmp_path)))

    assert outcome.problem is None
    assert restoring.ranges() == [(0, 60, 0)]
    assert cluster.end_offset(restoring.name, 0) == 60


async def test_first_record_that_the_topic_does_not_take_is_restored_by_the_next_run(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    log = new_log(tmp_path / "source")
    lead(log, records(1, value=b"w" * 900))
    for _ in range(4):
        lead(log, records(2))
    log.roll(now_ms=1)
    plan = plan_of(restoring, await restoring.lab.copy(closed(log)))
    config = {"max.message.bytes": "800"}
    outcome = await restoring.run(plan, config=config)
    assert "message_too_large" in str(outcome.problem)
    # A leader takes any batch as the first one of a producer that it does not know.
    assert cluster.end_offset(restoring.name, 0) == 0
    cluster.alter_topic(restoring.name, {"max.message.bytes": "2000"})

    assert (await restoring.run(plan, config=config)).problem is None

    assert restoring.ranges() == [(0, 9, 0)]
    restored = cluster.consume_all([(restoring.name, 0)])[restoring.name, 0]
    assert [record["value"] for record in restored] == [_text(b"w" * 900), *[_text(b"value")] * 8]


async def test_topic_that_is_made_anew_while_it_is_restored_is_not_called_restored(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(restoring, await copied(restoring, tmp_path))
    stream = restoring.lab.storage.stream_log_segment

    def wait_for_records(count: int) -> None:
        wait_until(lambda: cluster.end_offset(restoring.name, 0) >= count, what="the records before", deadline_s=60)

    async def made_anew_before_the_last(
        metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        if metadata.start_offset == 40 and '"step":"begin"' in restoring.journal.read_text():
            await asyncio.to_thread(wait_for_records, 40)
            await asyncio.to_thread(cluster.delete_topic, restoring.name)
            await asyncio.to_thread(cluster.create_topic, restoring.name)
        async for piece in stream(metadata, start_position, end_position):
            yield piece

    monkeypatch.setattr(restoring.lab.storage, "stream_log_segment", made_anew_before_the_last)

    outcome = await restoring.run(plan)

    assert outcome.problem is not None
    with pytest.raises(RefusedError, match="was deleted"):
        await restoring.run(plan)


async def test_topic_that_someone_creates_at_the_same_time_is_refused_and_stays_as_it_is(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic(restoring.name)
    plan = plan_of(restoring, await copied(restoring, tmp_path))
    with monkeypatch.context() as before:

        async def leaders_before_the_creation(topics: Collection[str]) -> Mapping[str, TopicLeaders]:
            return {}

        before.setattr(restoring.target, "leaders", leaders_before_the_creation)
        with pytest.raises(RefusedError, match="has a topic"):
            await restoring.run(plan)

    with pytest.raises(RefusedError, match="has a topic"):
        await restoring.run(plan)
    assert cluster.end_offset(restoring.name, 0) == 0


async def test_run_whose_next_records_have_left_the_tier_is_refused(
    restoring: Restoring, cluster: KafkaCluster, tmp_path: Path
) -> None:
    segments = await copied(restoring, tmp_path)
    assert (await restoring.run(plan_of(restoring, segments, end_offset=20))).problem is None
    restoring.lose_steps(BEGUN + 1)
    text = restoring.journal.read_text()
    restoring.journal.write_text(text.replace('"end_offset":20', '"end_offset":60'))

    outcome = await restoring.run(plan_of(restoring, segments[2:]))

    assert isinstance(outcome.problem, RefusedError)
    assert "goes on at offset 20, and nothing below 40 is planned" in str(outcome.problem)
    assert cluster.end_offset(restoring.name, 0) == 20


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
