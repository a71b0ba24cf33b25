"""Ends of connections: clients that vanish, deadlines, limits, throttled clients, and the stop of the endpoint."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
import uvloop
from kio.schema.fetch.v12.request import FetchRequest
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.static.primitive import i32Timedelta
from kio.static.protocol import RequestPayload, ResponsePayload
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.fakes.left_tasks import nothing_left
from tests.fakes.open_files import open_targets
from tests.serve.kafka.connections.running_endpoint import PLAIN, FrameClient, RunningEndpoint, running_endpoint
from tests.serve.kafka.connections.test_requests import FETCH, GROUPS, LIST_GROUPS, LISTED, answering, unthrottled
from tests.serve.kafka.kio_messages import decoded_answer, frame, sample, sized
from tierd.config import EndpointQuotaRule
from tierd.errors import ListenError
from tierd.serve.kafka.access import PrincipalQuotas
from tierd.serve.kafka.endpoint_limits import EndpointLimits
from tierd.serve.kafka.endpoint_statistics import RequestOutcome
from tierd.serve.kafka.request_context import Handler, RequestContext
from tierd.serve.kafka.served.served_log import FileSlice
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer
from tierd.testing import cancel_at

LIMITS = EndpointLimits(
    idle_timeout_s=600, login_timeout_s=30, request_timeout_s=20, send_timeout_s=40, stop_timeout_s=5
)
LARGE = bytes(4 << 20)


@dataclass
class Waiting:
    """Handler of a Fetch that waits until it is released or the endpoint stops."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0
    cancelled: int = 0
    minds_the_stop: bool = True

    async def __call__(self, request: RequestPayload, context: RequestContext) -> FetchAnswer:
        """Wait, and answer nothing."""
        self.begun += 1
        ends = [self.release.wait(), *([context.closing.wait()] if self.minds_the_stop else [])]
        tasks = [asyncio.create_task(each) for each in ends]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            for task in tasks:
                task.cancel()
        return FetchAnswer(unthrottled(FetchResponse), {})


async def large_fetch(request: RequestPayload, context: RequestContext) -> FetchAnswer:
    return FetchAnswer(unthrottled(FetchResponse), {(0, 0): (LARGE,) * 8})


@asynccontextmanager
async def waiting_client(running: RunningEndpoint, handler: Waiting) -> AsyncIterator[FrameClient]:
    """Yield a client whose Fetch waits."""
    client = await running.connect()
    before = handler.begun
    await client.send(sample(FetchRequest))
    await eventually(lambda: handler.begun > before, what="the handler")
    yield client


async def ticked(running: RunningEndpoint, delay_s: float) -> None:
    """Let so much time pass for the deadlines, which are looked at once a second."""
    await eventually(lambda: running.clock.sleeping > 0, what="the watch of the gate")
    running.clock.advance(delay_s)
    await eventually(lambda: running.clock.sleeping > 0 or not running.statistics().connections, what="the next look")


class TestVanishingClients:
    @pytest.mark.parametrize("end", ["close", "reset"])
    async def test_handler_of_a_client_that_goes_away_is_cancelled(self, end: str) -> None:
        handler = Waiting()
        async with running_endpoint({FETCH: handler}) as running:
            with running.socket() as client:
                client.sendall(sized(frame(sample(FetchRequest))))
                await eventually(lambda: handler.begun == 1, what="the handler")
                if end == "reset":
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await eventually(lambda: running.statistics().connections == 0, what="the end")

        assert handler.cancelled == 1
        assert [each.outcome for each in running.records.requests] == [RequestOutcome.ABANDONED]

    async def test_client_that_goes_away_behind_a_later_request_is_noticed(self) -> None:
        handler = Waiting()
        async with running_endpoint({FETCH: handler}) as running:
            with running.socket() as client:
                client.sendall(sized(frame(sample(FetchRequest))) * 3)
                await eventually(lambda: handler.begun == 1, what="the handler")
            await eventually(lambda: running.statistics().connections == 0, what="the end")

        assert (handler.begun, handler.cancelled) == (1, 1)

    async def test_client_that_goes_away_in_the_middle_of_an_answer_frees_its_memory(self) -> None:
        async with running_endpoint({FETCH: large_fetch}) as running:
            with running.socket() as client:
                client.sendall(sized(frame(sample(FetchRequest))))
                await eventually(lambda: running.statistics().sent_bytes > 0, what="the first bytes")
                assert running.endpoint.statistics().answer_bytes > 8 * len(LARGE)
            await eventually(lambda: running.endpoint.statistics().answer_bytes == 0, what="the memory")

    async def test_client_that_goes_away_in_the_middle_of_a_request_is_forgotten(self) -> None:
        async with running_endpoint({}) as running:
            with running.socket() as client:
                client.sendall(sized(frame(GROUPS))[:9])
                await eventually(lambda: running.statistics().connections == 1, what="the connection")
            await eventually(lambda: running.statistics().connections == 0, what="the end")
            assert running.statistics().closed_by_fault == 0

    async def test_waiting_request_does_not_hold_up_other_connections(self) -> None:
        handler = Waiting()
        handlers: dict[int, Handler] = {FETCH: handler, LIST_GROUPS: answering(LISTED)}
        async with running_endpoint(handlers) as running, waiting_client(running, handler) as client:
            other = await running.connect()
            assert await other.ask(GROUPS, ListGroupsResponse) == LISTED

            handler.release.set()
            await client.receive()
        assert handler.cancelled == 0


class TestDeadlines:
    async def test_client_that_sends_nothing_is_closed_after_the_idle_timeout(self) -> None:
        async with running_endpoint({}, limits=LIMITS) as running:
            client = await running.connect()
            await eventually(lambda: running.statistics().connections == 1, what="the connection")
            await ticked(running, 599)
            assert running.statistics().connections == 1

            await ticked(running, 1)

            assert await client.is_closed()

    async def test_client_that_stops_within_a_request_is_closed_after_the_request_timeout(self) -> None:
        async with running_endpoint({LIST_GROUPS: answering(LISTED)}, limits=LIMITS) as running:
            client = await running.connect()
            await client.send_bytes(sized(frame(GROUPS))[:9])
            await eventually(lambda: _deadlines_s(running) == [20], what="the first byte")
            await ticked(running, 20)

            assert await client.is_closed()

    async def test_client_that_takes_no_bytes_is_closed_after_the_send_timeout(self) -> None:
        async with running_endpoint({FETCH: large_fetch}, limits=LIMITS) as running:
            with running.socket() as client:
                client.sendall(sized(frame(sample(FetchRequest))))
                await eventually(lambda: running.endpoint.statistics().answer_bytes > 0, what="the answer")
                await ticked(running, 39)
                assert running.statistics().connections == 1
                await ticked(running, 40)

                await eventually(lambda: running.statistics().connections == 0, what="the end")
                assert running.endpoint.statistics().answer_bytes == 0

    async def test_client_that_takes_bytes_slowly_is_served_to_the_end(self) -> None:
        async with running_endpoint({FETCH: large_fetch}, limits=LIMITS) as running:
            client = await running.connect()
            await client.send(sample(FetchRequest))
            left = int.from_bytes(await client.reader.readexactly(4), "big")
            while left:
                left -= len(await client.reader.readexactly(min(left, 2 << 20)))
                await ticked(running, 30)  # much longer than the timeout in all

            assert running.statistics().connections == 1

    async def test_handler_may_take_any_time(self) -> None:
        handler = Waiting()
        endpoint = running_endpoint({FETCH: handler}, limits=LIMITS)
        async with endpoint as running, waiting_client(running, handler) as client:
            await ticked(running, 10_000)
            handler.release.set()
            await client.receive()


def _deadlines_s(running: RunningEndpoint) -> list[float]:
    now_s = running.clock.monotonic_s()
    return [place.deadline_s - now_s for place in running.endpoint._services.gate._connections]


class TestLimits:
    async def test_connection_beyond_those_of_one_peer_costs_its_longest_waiting_one(self) -> None:
        limits = replace(LIMITS, connections_per_peer=2)
        async with running_endpoint({LIST_GROUPS: answering(LISTED)}, limits=limits) as running:
            first, second = await running.connect(), await running.connect()
            await first.ask(GROUPS, ListGroupsResponse)
            running.clock.advance(1)
            await second.ask(GROUPS, ListGroupsResponse)
            third = await running.connect()

            assert await first.is_closed()
            assert await third.ask(GROUPS, ListGroupsResponse) == LISTED
            assert await second.ask(GROUPS, ListGroupsResponse) == LISTED

    async def test_connections_that_are_being_answered_are_never_cut_for_others(self) -> None:
        handler = Waiting()
        async with running_endpoint({FETCH: handler}, limits=replace(LIMITS, connections=2)) as running:
            async with waiting_client(running, handler) as one, waiting_client(running, handler) as two:
                for _ in range(20):
                    assert await (await running.connect()).is_closed()
                handler.release.set()
                await one.receive()
                await two.receive()
            assert running.endpoint.statistics().refused == 20

    async def test_flood_of_connections_leaves_no_descriptor_and_no_task(self) -> None:
        async with running_endpoint({LIST_GROUPS: answering(LISTED)}, limits=LIMITS) as running:
            before = len(open_targets())
            for flood in range(1, 11):
                sockets = [running.socket() for _ in range(30)]
                for each in sockets:
                    each.close()
                await eventually(lambda: running.statistics().accepted == 30 * flood, what="all of them")  # noqa: B023
            await eventually(lambda: running.statistics().connections == 0, what="the ends")
            await eventually(lambda: len(open_targets()) <= before, what="the descriptors")
            assert await (await running.connect()).ask(GROUPS, ListGroupsResponse) == LISTED
            assert len([task for task in asyncio.all_tasks() if "kafka connection" in task.get_name()]) == 1

    async def test_clients_that_read_or_send_nothing_are_cut_before_others_of_their_address_give_up(self) -> None:
        limits = replace(LIMITS, memory_bytes=64 << 20, answer_memory_bytes=8 << 20, request_bytes=8 << 20)

        async def fetch(request: RequestPayload, context: RequestContext) -> FetchAnswer:
            granted = await context.memory.reserve(50 << 20)
            return FetchAnswer(unthrottled(FetchResponse), {(0, 0): (bytes(granted),)})

        asking, sending = sized(frame(sample(FetchRequest))), (8 << 20).to_bytes(4, "big")
        large = replace(sample(FetchRequest), rack_id="r" * (1 << 20))
        async with running_endpoint({FETCH: fetch}, limits=limits) as running:
            with ExitStack() as stack:  # closed before the stop, which waits for slow readers
                for beginning in (asking, asking, asking, sending, sending):
                    stack.enter_context(running.socket()).sendall(beginning)
                statistics = running.endpoint.statistics
                await eventually(lambda: statistics().waiting_answers == 1, what="a slow reader that waits for others")
                await eventually(lambda: statistics().request_bytes == 8 << 20, what="a slow sender")
                quick = await running.connect()
                await quick.send(large)
                receiving, passed_s = asyncio.create_task(quick.receive()), 0
                while not receiving.done():
                    await ticked(running, 1)
                    passed_s += 1
                assert len(await receiving) > 8 << 20
                assert passed_s < 30  # Kafka: request.timeout.ms

    async def test_client_that_takes_no_answer_holds_no_memory_of_requests_while_others_wait_for_it(self) -> None:
        limits = replace(LIMITS, memory_bytes=64 << 20, request_bytes=8 << 20)
        large = sized(frame(replace(sample(FetchRequest), rack_id="r" * (7 << 20))))
        async with running_endpoint({FETCH: large_fetch}, limits=limits) as running:
            with ExitStack() as stack:
                slow = stack.enter_context(running.socket())
                await asyncio.to_thread(slow.sendall, large)
                await eventually(lambda: running.statistics().sent_bytes > 0, what="the answer that is not taken")
                quick = await running.connect()
                await quick.send_bytes(large[:100])
                await eventually(lambda: running.endpoint._services.requests.waiting == 1, what="the next request")
                for _ in range(7):
                    await ticked(running, 1)
                await eventually(lambda: running.statistics().connections == 1, what="the end of the slow client")
                await quick.send_bytes(large[100:])
                assert len(await quick.receive()) > 8 * len(LARGE)

    async def test_many_clients_that_read_nothing_hold_no_more_memory_than_there_is(self) -> None:
        limits = replace(LIMITS, memory_bytes=64 << 20, answer_memory_bytes=4 << 20)

        async def fetch(request: RequestPayload, context: RequestContext) -> FetchAnswer:
            granted = await context.memory.reserve(50 << 20)
            return FetchAnswer(unthrottled(FetchResponse), {(0, 0): (bytes(granted),)})

        async with running_endpoint({FETCH: fetch, LIST_GROUPS: answering(LISTED)}, limits=limits) as running:
            slow = [running.socket() for _ in range(60)]
            for each in slow:
                each.sendall(sized(frame(sample(FetchRequest))))
                await asyncio.sleep(0)
            await eventually(lambda: running.endpoint.statistics().waiting_answers > 0, what="answers that wait")
            assert running.endpoint.statistics().answer_bytes <= 25 << 20  # half of three quarters, and other answers
            quick = await running.connect()
            assert await quick.ask(GROUPS, ListGroupsResponse) == LISTED
            await quick.send(sample(FetchRequest))
            await eventually(lambda: len(running.records.requests) > 0, what="the record")

            while running.endpoint.statistics().waiting_answers:  # those that read nothing are closed in turn
                assert running.endpoint.statistics().answer_bytes < 25 << 20
                await ticked(running, 40)
            assert len(await quick.receive()) > 4 << 20
            for each in slow:
                each.close()
            await eventually(lambda: running.statistics().connections == 1, what="the ends")

        assert running.endpoint.statistics().answer_bytes == 0

    async def test_principal_with_as_many_connections_as_it_may_have_gets_no_other(self) -> None:
        rules = [EndpointQuotaRule.model_validate({"principals": [".*"], "connections": 1})]
        quotas = PrincipalQuotas(lambda: rules)
        with capture_logs() as logs:
            async with running_endpoint({LIST_GROUPS: answering(LISTED)}, quotas=quotas) as running:
                first = await running.connect()
                await first.ask(GROUPS, ListGroupsResponse)

                assert await (await running.connect()).is_closed()
                await first.close()
                await eventually(lambda: quotas.connections("User:ANONYMOUS") == 0, what="the end of the first")
                assert await (await running.connect()).ask(GROUPS, ListGroupsResponse) == LISTED

        assert "as many connections as it may have" in logs[0]["problem"]


class TestThrottledClients:
    async def test_client_above_its_rate_is_told_so_and_its_next_request_waits(self) -> None:
        rules = [EndpointQuotaRule.model_validate({"principals": [".*"], "requests_per_second": 1})]
        quotas = PrincipalQuotas(lambda: rules)
        async with running_endpoint({LIST_GROUPS: answering(LISTED)}, quotas=quotas) as running:
            client = await running.connect()
            throttle_time = timedelta(0)
            while not throttle_time:
                answer = await client.ask(GROUPS, ListGroupsResponse)
                assert isinstance(answer, ListGroupsResponse)
                throttle_time = answer.throttle_time
            count = running.statistics().requests["ListGroups"]
            await client.send(GROUPS)
            await eventually(lambda: running.clock.sleeping == 2, what="the pause")
            assert running.statistics().requests["ListGroups"] == count

            running.clock.advance(throttle_time.total_seconds())

            await client.receive()

    async def test_records_that_were_admitted_before_count_once(self) -> None:
        rules = [EndpointQuotaRule.model_validate({"principals": [".*"], "bytes_per_second": 1000})]
        quotas = PrincipalQuotas(lambda: rules)

        async def fetch(request: RequestPayload, context: RequestContext) -> FetchAnswer:
            assert not quotas.admit(context.principal, 600, running.clock.monotonic_s())
            return FetchAnswer(unthrottled(FetchResponse), {(0, 0): (b"x" * 600,)}, counted_bytes=600)

        async with running_endpoint({FETCH: fetch}, quotas=quotas) as running:
            client = await running.connect()
            await client.ask(sample(FetchRequest), FetchResponse)
            assert not quotas.throttle_ms("User:ANONYMOUS", running.clock.monotonic_s())

    async def test_throttle_time_of_a_handler_makes_its_connection_pause(self) -> None:
        response = replace(LISTED, throttle_time=i32Timedelta.parse(timedelta(seconds=3)))
        async with running_endpoint({LIST_GROUPS: answering(response)}) as running:
            client = await running.connect()
            assert await client.ask(GROUPS, ListGroupsResponse) == response
            await client.send(GROUPS)
            await eventually(lambda: running.clock.sleeping == 2, what="the pause")
            assert running.statistics().requests["ListGroups"] == 1

            running.clock.advance(3)

            assert decoded_answer(ListGroupsResponse, await client.receive())[1] == response

    async def test_paused_client_that_goes_away_is_forgotten(self) -> None:
        response = replace(LISTED, throttle_time=i32Timedelta.parse(timedelta(seconds=3000)))
        async with running_endpoint({LIST_GROUPS: answering(response)}) as running:
            client = await running.connect()
            await client.ask(GROUPS, ListGroupsResponse)
            await client.close()

            await eventually(lambda: running.statistics().connections == 0, what="the end")


class TestStop:
    async def test_waiting_handler_answers_what_it_has_and_idle_clients_are_closed(self) -> None:
        handler = Waiting()
        async with running_endpoint({FETCH: handler}) as running:
            idle = await running.connect()
            async with waiting_client(running, handler) as client:
                running.clients.clear()

        assert isinstance(decoded_answer(FetchResponse, await client.receive())[1], FetchResponse)
        assert await client.is_closed()
        assert await idle.is_closed()
        assert handler.cancelled == 0
        await client.close()
        await idle.close()

    async def test_handler_that_does_not_mind_the_stop_is_cancelled_after_its_deadline(self) -> None:
        handler = Waiting(minds_the_stop=False)
        stopped = asyncio.Event()

        async def run() -> None:
            async with running_endpoint({FETCH: handler}, limits=LIMITS) as running:
                found.append(running)
                await leave.wait()
                running.clients.clear()
            stopped.set()

        found: list[RunningEndpoint] = []
        leave = asyncio.Event()
        task = asyncio.create_task(run())
        await eventually(lambda: bool(found), what="the endpoint")
        async with waiting_client(found[0], handler) as client:
            sleeping = found[0].clock.sleeping
            leave.set()
            await eventually(lambda: found[0].clock.sleeping == sleeping + 1, what="the deadline of the stop")
            assert not stopped.is_set()

            found[0].clock.advance(5)

            await task
        assert handler.cancelled == 1
        assert await client.is_closed()
        await client.close()

    async def test_answer_under_way_is_sent_to_its_end(self) -> None:
        async with running_endpoint({FETCH: large_fetch}) as running:
            client = await running.connect()
            await client.send(sample(FetchRequest))
            await eventually(lambda: running.endpoint.statistics().answer_bytes > 0, what="the answer")
            running.clients.clear()
            receiving = asyncio.create_task(client.receive())

        assert len(await receiving) > 8 * len(LARGE)
        await client.close()

    async def test_new_connections_are_refused(self) -> None:
        async with running_endpoint({}) as running:
            address = running.addresses["plain"]

        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)

    async def test_stopped_endpoint_leaves_no_task(self) -> None:
        async with running_endpoint({LIST_GROUPS: answering(LISTED)}) as running:
            for _ in range(5):
                await (await running.connect()).ask(GROUPS, ListGroupsResponse)

        assert [task.get_name() for task in asyncio.all_tasks() if "kafka" in task.get_name()] == []


def test_endpoint_serves_in_the_loop_of_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(LARGE)
    records = (b"in memory", FileSlice(path, path.stat().st_ino, 0, len(LARGE)), LARGE)
    waiting = Waiting()

    async def fetch(request: RequestPayload, context: RequestContext) -> FetchAnswer:
        return FetchAnswer(unthrottled(FetchResponse), {(0, 0): records})

    async def play() -> None:
        async with running_endpoint({FETCH: fetch}) as running:
            answer = await (await running.connect()).ask(sample(FetchRequest), FetchResponse)
            assert isinstance(answer, FetchResponse)
            assert answer.responses[0].partitions[0].records == b"in memory" + LARGE + LARGE
        async with running_endpoint({FETCH: waiting}) as running, waiting_client(running, waiting) as client:
            await client.close()
            await eventually(lambda: running.statistics().connections == 0, what="the end")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play())
    assert waiting.cancelled == 1


async def test_address_in_use_is_an_error_and_leaves_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        free, used = PLAIN, replace(PLAIN, name="second", port=port)
        with pytest.raises(ExceptionGroup) as failure:
            async with running_endpoint({}, free, used):
                pytest.fail("it is bound")

    assert failure.value.subgroup(ListenError) is not None
    assert f"127.0.0.1:{port}" in str(failure.value.exceptions[0])


async def test_listeners_have_statistics_of_their_own() -> None:
    second = replace(PLAIN, name="second")

    async def handle(request: RequestPayload, context: RequestContext) -> ResponsePayload:
        assert context.listener == "second"
        return LISTED

    async with running_endpoint({LIST_GROUPS: handle}, PLAIN, second) as running:
        await (await running.connect("second")).ask(GROUPS, ListGroupsResponse)

        assert running.statistics("second").requests == {"ListGroups": 1}
        assert running.statistics("plain").requests == {}


async def test_ports_are_known_before_the_first_connection_is_accepted() -> None:
    async with running_endpoint({}, PLAIN, replace(PLAIN, name="second")) as running:
        ports = {port for _, port in running.addresses.values()}

    assert len(ports) == 2
    assert 0 not in ports


async def test_second_cancellation_of_the_stop_waits_for_no_answer_and_leaves_nothing() -> None:
    handler, entered = Waiting(minds_the_stop=False), asyncio.Event()
    found: list[RunningEndpoint] = []

    async def run() -> None:
        async with running_endpoint({FETCH: handler}, limits=LIMITS) as running:
            found.append(running)
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                running.clients.clear()

    with nothing_left():
        task = asyncio.create_task(run(), name="endpoint")
        await entered.wait()
        async with waiting_client(found[0], handler) as client:
            sleeping = found[0].clock.sleeping
            task.cancel()
            await eventually(lambda: found[0].clock.sleeping == sleeping + 1, what="the deadline of the stop")
            assert not task.done()
            task.cancel()
            await asyncio.wait({task})
            await client.close()
        assert task.cancelled()
        assert handler.cancelled == 1


async def test_endpoint_whose_stop_is_cancelled_again_leaves_no_task_and_no_port() -> None:
    ports: list[int] = []

    async def serve() -> None:
        async with running_endpoint({}) as running:
            ports.append(running.addresses["plain"][1])
            for _ in range(5):
                await asyncio.sleep(0)

    suspension = 1
    with nothing_left():
        while await cancel_at(suspension, serve, times=2):
            suspension += 1
    assert len(ports) > 4
    for port in ports:
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))
