"""A crowd of connections: most are idle, many consume or wait, and a few take no answer. The clock stands still."""

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import pytest
from kio.index import load_response_schema

from tests.fakes.eventually import eventually
from tests.fakes.open_files import open_targets
from tests.fakes.served_log import FakeServedLog
from tests.fakes.served_partitions import FakeServedPartitions
from tests.serve.kafka.connections.running_endpoint import FrameClient, RunningEndpoint, running_endpoint
from tests.serve.kafka.fetching.fetch_endpoint import FixedQuotas, Kio, OpenAuthorizer, Want, fetch_request
from tests.serve.kafka.kio_messages import frame, sized
from tierd.serve.kafka.endpoint_limits import EndpointLimits
from tierd.serve.kafka.fetching.fetch_handlers import FETCH, fetch_handlers, fetch_sessions

CONNECTIONS, CONSUMERS, WAITING, SLOW = 1000, 200, 100, 10
ANSWERS, ANSWER_BYTES = 5, 64 << 10
MEMORY_BYTES = 64 << 20
VERSION = 12
TOPIC = "busy"


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """Allow both ends of all connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * CONNECTIONS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def crowded() -> AsyncIterator[tuple[RunningEndpoint, FakeServedLog]]:
    """Run an endpoint with one log of ``ANSWERS`` batches, of which each is an answer."""
    served = FakeServedPartitions()
    [log] = served.add_topic(TOPIC)
    for _ in range(ANSWERS):
        log.append([bytes(ANSWER_BYTES)])
    handlers = dict[int, Kio]()
    most = 2 * CONNECTIONS
    limits = EndpointLimits(connections=most, connections_per_peer=most, memory_bytes=MEMORY_BYTES)
    async with running_endpoint(handlers, limits=limits) as running:
        handlers |= fetch_handlers(served, OpenAuthorizer(), FixedQuotas(), fetch_sessions(), clock=running.clock)
        yield running, log


async def consume(client: FrameClient, running: RunningEndpoint) -> int:
    """Read the log answer by answer; return the largest memory of all answers that was seen."""
    offset, most_bytes = 0, 0
    while offset < ANSWERS:
        request = fetch_request([Want(TOPIC, offset=offset, max_bytes=ANSWER_BYTES)], version=VERSION)
        answer: Kio = await client.ask(request, load_response_schema(FETCH, VERSION))
        most_bytes = max(most_bytes, running.endpoint.statistics().answer_bytes)
        assert len(answer.responses[0].partitions[0].records) > ANSWER_BYTES
        offset += 1
    return most_bytes


async def test_slow_readers_in_a_crowd_cost_the_others_no_answer_and_no_memory_beyond_the_bound() -> None:
    async with crowded() as (running, log):
        targets = len(open_targets())
        with ExitStack() as stack:  # of clients that read nothing; closed before the stop, which waits for them
            clients = [await running.connect() for _ in range(CONNECTIONS - SLOW)]
            large = sized(frame(fetch_request([Want(TOPIC, max_bytes=16 << 20)], version=VERSION)))
            for _ in range(SLOW):
                stack.enter_context(running.socket()).sendall(large * 100)  # more than the buffers of the kernel hold
            await eventually(lambda: running.statistics().connections == CONNECTIONS, what="the crowd")
            waiting = clients[:WAITING]
            at_the_end = fetch_request([Want(TOPIC, offset=ANSWERS)], version=VERSION, max_wait_ms=600_000)
            for client in waiting:
                await client.send(at_the_end)
            await eventually(lambda: log.listener_count == WAITING, what="those that wait for a record")
            await eventually(lambda: running.statistics().requests.get("Fetch", 0) > 0, what="an answer to a slow one")

            seen = await asyncio.gather(*(consume(each, running) for each in clients[WAITING : WAITING + CONSUMERS]))

            assert max(seen) <= MEMORY_BYTES * 3 // 4
            assert running.endpoint.statistics().answer_bytes > 0, "slow readers hold their memory to the end"
            log.append()
            assert len(await asyncio.gather(*(each.receive() for each in waiting))) == WAITING
            assert running.clock.monotonic_s() == 0.0, "no deadline has cut anything"
        for client in clients:
            await client.close()
        running.clients.clear()
        await eventually(lambda: running.statistics().connections == 0, what="the ends")
        assert len(open_targets()) <= targets
        assert running.endpoint.statistics().answer_bytes == 0
        assert not [task for task in asyncio.all_tasks() if "kafka connection" in task.get_name()]
