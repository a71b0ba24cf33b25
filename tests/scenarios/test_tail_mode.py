"""Tail mode beside a real broker: transactions, rolls, preallocated files, SIGKILL, topics that are made again."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.replication.tail.tail_listening import RecordingListener
from tests.scenarios.conftest import MakeBroker
from tests.scenarios.traffic import TopicPlan, Traffic
from tests.services.kafka_cluster import KafkaBroker
from tierd.clock import SystemClock
from tierd.log import identify_directory, read_lineage
from tierd.model import TopicIdPartition
from tierd.replication.tail.tail_follower import TailFollower
from tierd.replication.tail.tail_values import TailSettings
from tierd.replication.tail.tailed_log import TailedLog

pytestmark = pytest.mark.service("kafka")

TOPICS = (
    TopicPlan(name="plain"),
    TopicPlan(name="transactional", transactional=True),
    TopicPlan(name="room", configs={"preallocate": "true"}, codec="zstd"),
)
SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": "500"}


@pytest.mark.spec("push-replication 2.14")
@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
async def test_listeners_have_the_log_of_the_broker_after_rolls_a_kill_and_a_new_topic(
    version: str, make_broker: MakeBroker
) -> None:
    broker = await asyncio.to_thread(lambda: make_broker(version, properties=SETTINGS))
    traffic = Traffic(broker, TOPICS, seed=41)
    await asyncio.to_thread(traffic.create_topics)
    async with following(broker) as follower:
        tails = {topic.name: await followed(follower, broker, topic.name) for topic in TOPICS}
        await asyncio.to_thread(lambda: traffic.fill(rolled_segments=2))
        for name, (log, listener) in tails.items():
            await assert_same_log(broker, name, log, listener)

        await asyncio.to_thread(lambda: restart_without_unflushed(broker, "plain"))
        later = Traffic(broker, TOPICS, seed=42)
        await asyncio.to_thread(lambda: later.fill(rolled_segments=4))
        for name, (log, listener) in tails.items():
            await assert_same_log(broker, name, log, listener)
        assert "truncated" in {name for name, _ in tails["plain"][1].events}
        assert "truncated" not in {name for name, _ in tails["transactional"][1].events}

        former = tails["room"][0]
        await asyncio.to_thread(lambda: broker.delete_topic("room"))
        await eventually(lambda: follower.problem_of(former.partition) is not None, what="the loss of the topic")
        await asyncio.to_thread(lambda: broker.create_topic("room", partitions=1, segment_bytes=16_384))
        newer, listener = await followed(follower, broker, "room")
        await asyncio.to_thread(lambda: Traffic(broker, TOPICS[2:], seed=43).fill(rolled_segments=1))
        await assert_same_log(broker, "room", newer, listener)
        assert former.log_end_offset > 0

        committed = broker.end_offset("room", 0)
        await eventually(lambda: newer.high_watermark == committed, what="the watermark in the checkpoint")
        assert follower.statistics().watched == len(TOPICS)


@asynccontextmanager
async def following(broker: KafkaBroker) -> AsyncIterator[TailFollower]:
    follower = TailFollower(broker.log_dirs, TailSettings(), clock=SystemClock())
    task = asyncio.create_task(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()


async def followed(follower: TailFollower, broker: KafkaBroker, name: str) -> tuple[TailedLog, RecordingListener]:
    topic_id = await asyncio.to_thread(lambda: broker.topic_id(name))
    await eventually(lambda: is_made(broker, name, topic_id), what=f"directory and topic id of {name}")
    log = await follower.follow(TopicIdPartition(topic_id, name, 0))
    listener = RecordingListener(log.log_end_offset)
    log.listen(listener)
    return log, listener


def is_made(broker: KafkaBroker, name: str, topic_id: UUID) -> bool:
    """Return True once the broker has made a partition: first the directory, then the segment, then the topic id."""
    path = broker.partition_dir(name, 0)
    directory = None if path is None else identify_directory(path)
    return directory is not None and directory.topic_id == topic_id


async def assert_same_log(broker: KafkaBroker, name: str, log: TailedLog, listener: RecordingListener) -> None:
    end = await asyncio.to_thread(lambda: broker.end_offset(name, 0))
    await eventually(lambda: log.log_end_offset == end, what=f"log end {end} of {name}")
    directory = directory_of(broker, name)
    written = dict(chain.from_iterable(batches_of(file.read_bytes()) for file in sorted(directory.glob("*.log"))))
    assert listener.told == {offset: data for offset, data in written.items() if offset >= listener.start_offset}
    assert log.lineage.latest == read_lineage(directory).latest
    read, offset = b"", listener.start_offset
    while offset < end:
        piece = await log.read(offset, 1 << 20)
        read += piece
        offset = piece_end(piece)
    assert read == b"".join(listener.told.values())


def batches_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each batch, up to the room behind the data."""
    at = 0
    while (size := int.from_bytes(data[at + 8 : at + 12], "big")) > 0:
        yield int.from_bytes(data[at : at + 8], "big"), data[at : at + size + 12]
        at += size + 12


def piece_end(piece: bytes) -> int:
    *_, (base_offset, last) = batches_of(piece)
    return base_offset + int.from_bytes(last[23:27], "big") + 1


def directory_of(broker: KafkaBroker, name: str) -> Path:
    directory = broker.partition_dir(name, 0)
    assert directory is not None
    return directory


def restart_without_unflushed(broker: KafkaBroker, name: str) -> None:
    """Kill the broker and start it without the last records of one topic, as after a loss of the page cache."""
    broker.kill(1)
    logs = sorted(directory_of(broker, name).glob("*.log"))
    torn, *later = logs[-3:]
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2 + 7])
    for log in later:
        for file in log.parent.glob(f"{log.stem}.*"):
            file.unlink()
    (broker.log_dirs[0] / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    broker.start(1)
