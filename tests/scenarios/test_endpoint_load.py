"""A thousand connections to the endpoint, of which two hundred consume and some are slow."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from tests.bench.child_process import resident_bytes
from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.scenarios.golden_server import endpoint_settings
from tests.scenarios.installation import Daemon, Installation
from tests.scenarios.load_client import ANSWER_DEADLINE_S, LoadConnection, end_of_batches, fetch_frame
from tests.scenarios.log_dirs import delete_copied_segments
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.ports import free_port
from tests.services.waiting import wait_until

CONNECTIONS, CONSUMERS, WAITING, SLOW = 1000, 200, 100, 10
TOPIC, PARTITIONS = "busy", 8
SHAPE = SegmentShape(batches=30, records_per_batch=16, value_bytes=1000)
ROLLED_SEGMENTS = 4
FETCH_BYTES = 1 << 20
MAX_MEMORY_BYTES = 64 << 20
SLACK_BYTES = 128 << 20  # caches of chunks and indexes, buffers of the connections, pages of a process that forked
FILES_PER_CONSUMER = 2
STEADY, SMALL_BYTES = 50, 32 << 10
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BusyEndpoint:
    """Endpoint of a daemon whose partitions are half in the tier alone."""

    daemon: Daemon
    port: int
    records: int

    def descriptors(self) -> int:
        """Return the number of open descriptors of the daemon."""
        return len(list(Path(f"/proc/{self.daemon.pid}/fd").iterdir()))

    def memory_bytes(self) -> int:
        """Return the resident memory of the daemon now."""
        return resident_bytes(self.daemon.pid)[0]

    def peak_bytes(self) -> int:
        """Return the highest resident memory so far."""
        return resident_bytes(self.daemon.pid)[1]


@pytest.fixture
def endpoint(tmp_path: Path, warm_tierd: WarmTierd) -> Iterator[BusyEndpoint]:
    """Serve partitions of some segments, of which the older half is in the tier alone."""
    writer = LogDirWriter(tmp_path / "kafka")
    topic_id = uuid4()
    partitions = [writer.add_partition(TOPIC, number, topic_id=topic_id) for number in range(PARTITIONS)]
    for partition in partitions:
        partition.fill(rolled_segments=ROLLED_SEGMENTS, shape=SHAPE)
    writer.write_checkpoints()
    port = free_port()
    tierd = Installation(tmp_path / "tierd", [writer.path], settings=endpoint_settings(port), warm=warm_tierd)
    limits = {
        "max_memory": MAX_MEMORY_BYTES,
        "max_connections": 2 * CONNECTIONS,
        "max_connections_per_peer": 2 * CONNECTIONS,
    }
    tierd.configure({"kafka": limits})
    copied = tierd.ask("copy", "--once")
    assert copied.exit_code == 0, copied.output
    per_segment = SHAPE.batches * SHAPE.records_per_batch
    for partition in partitions:
        delete_copied_segments(partition.path, copied_through=per_segment * ROLLED_SEGMENTS // 2 - 1)
    with tierd.daemon() as daemon:
        yield BusyEndpoint(daemon, port, partitions[0].end_offset)


def test_two_hundred_consumers_of_a_thousand_connections_read_everything_in_bounded_memory(
    endpoint: BusyEndpoint,
) -> None:
    with asyncio.Runner() as runner:
        # Opens what stays open. Chunks that are read again stay open for a minute or two, and are sent as they are.
        for partition in (*range(PARTITIONS), *range(PARTITIONS)):
            assert runner.run(_consume_once(endpoint, partition)) == endpoint.records
        descriptors, memory_bytes = endpoint.descriptors(), endpoint.memory_bytes()

        read = runner.run(_crowd(endpoint))

    assert read == [endpoint.records] * CONSUMERS
    assert endpoint.peak_bytes() - memory_bytes < MAX_MEMORY_BYTES + SLACK_BYTES
    wait_until(
        lambda: endpoint.descriptors() <= descriptors + 4,
        what="the descriptors of the connections to be closed",
        deadline_s=30,
        last_seen=endpoint.descriptors,
    )


def test_daemon_that_is_stopped_under_load_cuts_no_answer_and_consumers_go_on_when_it_is_back(
    endpoint: BusyEndpoint,
) -> None:
    steady = [SteadyConsumer(endpoint, n % PARTITIONS) for n in range(STEADY)]

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            for each in steady:
                group.create_task(each.run())
            waiting = await LoadConnection.opened("127.0.0.1", endpoint.port)
            async with waiting:
                at_the_end = fetch_frame(TOPIC, 0, endpoint.records, max_bytes=1, max_wait_s=ANSWER_DEADLINE_S)
                await waiting.send(at_the_end)
                await eventually(lambda: all(each.offset for each in steady), what="all to read")
                assert await asyncio.to_thread(endpoint.daemon.stop) == 0
                assert await waiting.answer(), "a Fetch that waits is answered"
            await asyncio.to_thread(endpoint.daemon.start)

    with asyncio.Runner() as runner:
        runner.run(story())
    assert [each.offset for each in steady] == [endpoint.records] * STEADY
    assert any(each.lost for each in steady), "some were reading when the daemon ended"
    assert not any(each.cut for each in steady), "no answer was cut"


@dataclass(slots=True)
class SteadyConsumer:
    """Reader of one partition in small answers, over a new connection where one ends."""

    endpoint: BusyEndpoint
    partition: int
    offset: int = 0
    lost: int = 0
    cut: bytes = b""

    async def run(self) -> None:
        """Read to the end."""
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            while self.offset < self.endpoint.records:
                try:
                    await self._read()
                except asyncio.IncompleteReadError as error:
                    self.lost += 1
                    self.cut += error.partial
                except ConnectionError:  # the connection ended, or the daemon is not back
                    await asyncio.sleep(0.05)

    async def _read(self) -> None:
        async with await LoadConnection.opened("127.0.0.1", self.endpoint.port) as connection:
            while self.offset < self.endpoint.records:
                found = await connection.fetch(
                    TOPIC, self.partition, self.offset, max_bytes=SMALL_BYTES, max_wait_s=1.0
                )
                assert found.error_code is ErrorCode.none, found.error_code
                self.offset = end_of_batches(found.records or b"", self.offset)


async def _consume_once(endpoint: BusyEndpoint, partition: int) -> int:
    async with await LoadConnection.opened("127.0.0.1", endpoint.port) as connection:
        return await connection.consume(TOPIC, partition, max_bytes=FETCH_BYTES)


async def _crowd(endpoint: BusyEndpoint) -> list[int]:
    """Open all connections; return the number of records of each consumer."""
    before = endpoint.descriptors()
    async with AsyncExitStack() as stack:
        found = await _together(LoadConnection.opened("127.0.0.1", endpoint.port) for _ in range(CONNECTIONS))
        for connection in found:
            await stack.enter_async_context(connection)
        consumers, rest = found[:CONSUMERS], found[CONSUMERS:]
        for connection in rest[:WAITING]:
            at_the_end = fetch_frame(TOPIC, 0, endpoint.records, max_bytes=FETCH_BYTES, max_wait_s=ANSWER_DEADLINE_S)
            await connection.send(at_the_end)
        for connection in rest[WAITING : WAITING + SLOW]:
            await _ask_and_never_read(connection)
        for connection in rest[WAITING + SLOW : WAITING + 2 * SLOW]:
            await connection.send(b"\0\0\1\0\0\1")  # the beginning of a request whose end never comes
        read = await _together(
            connection.consume(TOPIC, n % PARTITIONS, max_bytes=FETCH_BYTES) for n, connection in enumerate(consumers)
        )
        assert endpoint.descriptors() <= before + CONNECTIONS + CONSUMERS * FILES_PER_CONSUMER
        await _together(
            connection.fetch(TOPIC, 1, 0, max_bytes=1, max_wait_s=0.0) for connection in rest[2 * WAITING :]
        )
    return read


async def _ask_and_never_read(connection: LoadConnection) -> None:
    """Ask for more answers than the buffers of the kernel hold."""
    for _ in range(8):
        await connection.send(fetch_frame(TOPIC, 1, 0, max_bytes=FETCH_BYTES, max_wait_s=0.0))


async def _together(calls: "Iterator[Awaitable[T]]") -> list[T]:
    return list(await asyncio.gather(*calls))
