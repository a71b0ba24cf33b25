"""Promises of a KeyValueStore whose server may die, hang, lose an answer or move, tested on the real server.

Subclass the contract and provide ``server`` and ``faulty``, the path to the server that can be disturbed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import pytest

from tests.fakes.eventually import eventually, succeeds_in_the_end
from tests.services.faulty_path import FaultyPath
from tierd.errors import BackendUnavailableError, MetadataError, OutcomeUnknownError, PreconditionFailedError
from tierd.metadata import Batch, Expect, KeyValueStore, Put

SHORT_S = 0.5


class NetworkedServer(Protocol):
    """One empty database on a real server."""

    def open(
        self, *, by: str | None = None, timeout_s: float = 5.0, read_only: bool = False
    ) -> Awaitable[KeyValueStore]:
        """Open a store, by another host and port when ``by`` is given."""

    def kill(self) -> None:
        """End the server as a power cut does."""

    def start(self) -> None:
        """Start the server again with the same data on the same port."""

    def freeze(self) -> None:
        """Stop the processes of the server without ending them."""

    def thaw(self) -> None:
        """Continue the stopped processes."""

    def cut_connections(self) -> None:
        """End every connection of tierd at the server, as a failover does."""

    @property
    def secret(self) -> str:
        """Return the secret that no message may contain."""


@contextlib.asynccontextmanager
async def opened(opening: Awaitable[KeyValueStore]) -> AsyncIterator[KeyValueStore]:
    store = await opening
    try:
        yield store
    finally:
        await store.close()


async def recovered(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat ``call`` until the store answers again, without opening it anew."""
    await succeeds_in_the_end(call, despite=(BackendUnavailableError, OutcomeUnknownError))


class NetworkedKeyValueStoreContract:
    async def test_store_recovers_after_a_server_kill_with_all_acknowledged_batches(
        self, server: NetworkedServer
    ) -> None:
        acknowledged, doubtful = dict[str, int](), dict[str, int]()

        async def write(store: KeyValueStore, partition: str) -> None:
            for number in range(1, 100_000):
                value = None if number == 1 else str(number - 1).encode()
                batch = Batch([Put(partition, str(number).encode()), Put(f"{partition}/{number}", b"")])
                try:
                    await store.apply(Batch(batch.writes, [Expect(partition, value)]))
                except OutcomeUnknownError:
                    doubtful[partition] = number
                    return
                except BackendUnavailableError:
                    return
                acknowledged[partition] = number

        async with opened(server.open()) as store:
            writers = [asyncio.create_task(write(store, f"p{number:02}")) for number in range(16)]
            await eventually(lambda: sum(acknowledged.values()) > 200, what="some batches to be durable")
            server.kill()
            await asyncio.wait(writers)
            assert all(writer.exception() is None for writer in writers)
            server.start()
            await recovered(lambda: store.get("p00"))
            for partition in (f"p{number:02}" for number in range(16)):
                last = int(await store.get(partition) or b"0")
                assert last in {acknowledged.get(partition, 0), doubtful.get(partition, acknowledged.get(partition, 0))}
                rows = {key for key, _ in await store.scan(f"{partition}/")}
                assert rows == {f"{partition}/{number}" for number in range(1, last + 1)}
            await store.apply(Batch([Put("after", b"1")]))

    async def test_calls_to_a_hanging_server_end_in_time_and_the_thawed_server_is_used_again(
        self, server: NetworkedServer
    ) -> None:
        async with opened(server.open(timeout_s=SHORT_S)) as store:
            await store.apply(Batch([Put("a", b"1")]))
            server.freeze()
            try:
                async with asyncio.timeout(10 * SHORT_S):
                    with pytest.raises(OutcomeUnknownError, match="in time"):
                        await store.apply(Batch([Put("a", b"2")], [Expect("a", b"1")]))
                    with pytest.raises(BackendUnavailableError, match="in time"):
                        await store.get("a")
                    with pytest.raises(BackendUnavailableError):
                        await store.apply(Batch([Put("b", b"2")]))
            finally:
                server.thaw()
            await recovered(lambda: store.apply(Batch([Put("after", b"1")])))
            assert await store.get("a") in {b"1", b"2"}
            assert await store.get("b") is None

    async def test_batch_with_a_lost_answer_is_of_unknown_outcome_and_stored(
        self, server: NetworkedServer, faulty: FaultyPath
    ) -> None:
        async with opened(server.open(by=faulty.address)) as store:
            await store.apply(Batch([Put("a", b"1")], [Expect("a", None)]))
            faulty.add("limit_data", "downstream", bytes=0)
            with pytest.raises(OutcomeUnknownError) as caught:
                await store.apply(Batch([Put("a", b"2")], [Expect("a", b"1")]))
            assert server.secret not in str(caught.value)
            faulty.remove("limit_data", "downstream")
            assert await store.get("a") == b"2"
            with pytest.raises(PreconditionFailedError):
                await store.apply(Batch([Put("a", b"2")], [Expect("a", b"1")]))

    async def test_batch_with_a_lost_request_is_of_unknown_outcome_and_not_stored(
        self, server: NetworkedServer, faulty: FaultyPath
    ) -> None:
        async with opened(server.open(by=faulty.address, timeout_s=SHORT_S)) as store:
            await store.apply(Batch([Put("a", b"1")], [Expect("a", None)]))
            faulty.add("timeout", "upstream", timeout=0)
            with pytest.raises(OutcomeUnknownError):
                await store.apply(Batch([Put("a", b"2")], [Expect("a", b"1")]))
            faulty.remove("timeout", "upstream")
            assert await store.get("a") == b"1"

    async def test_batch_that_was_not_sent_is_reported_as_unwritten(
        self, server: NetworkedServer, faulty: FaultyPath
    ) -> None:
        async with opened(server.open(by=faulty.address)) as store:
            faulty.disable()
            with pytest.raises(BackendUnavailableError):
                await store.get("a")
            with pytest.raises(BackendUnavailableError) as caught:
                await store.apply(Batch([Put("a", b"1")]))
            assert "host and port" in caught.value.remedy
            faulty.enable()
            assert await store.get("a") is None
            await store.apply(Batch([Put("a", b"1")]))

    async def test_reads_succeed_after_every_connection_is_cut(self, server: NetworkedServer) -> None:
        async with opened(server.open()) as store:
            await asyncio.gather(*(store.apply(Batch([Put(f"k{number}", b"1")])) for number in range(20)))
            await asyncio.gather(*(store.get(f"k{number}") for number in range(20)))
            for _ in range(3):
                server.cut_connections()
                found = await asyncio.gather(*(store.get(f"k{number}") for number in range(20)))
                assert found == [b"1"] * 20
            server.cut_connections()
            await recovered(lambda: store.apply(Batch([Put("a", b"1")])))

    async def test_calls_over_a_slow_network_succeed(self, server: NetworkedServer, faulty: FaultyPath) -> None:
        async with opened(server.open(by=faulty.address)) as store:
            faulty.add("latency", "downstream", latency=50)
            await asyncio.gather(*(store.apply(Batch([Put(f"k{number}", b"1")])) for number in range(30)))
            assert len(await store.scan("k")) == 30

    @pytest.mark.spec("remote-tiering 104")
    async def test_missing_server_is_reported_immediately(self, server: NetworkedServer, faulty: FaultyPath) -> None:
        faulty.disable()
        async with asyncio.timeout(2):
            with pytest.raises(BackendUnavailableError) as caught:
                await server.open(by=faulty.address)
        assert faulty.address in str(caught.value)
        assert caught.value.remedy
        assert server.secret not in str(caught.value) + caught.value.remedy

    @pytest.mark.spec("remote-tiering 104")
    async def test_a_server_that_never_answers_is_reported_in_time(
        self, server: NetworkedServer, faulty: FaultyPath
    ) -> None:
        faulty.add("timeout", "upstream", timeout=0)
        async with asyncio.timeout(10 * SHORT_S):
            with pytest.raises(BackendUnavailableError, match="in time"):
                await server.open(by=faulty.address, timeout_s=SHORT_S)

    async def test_read_only_store_reads_beside_a_daemon_and_refuses_writes(self, server: NetworkedServer) -> None:
        async with opened(server.open()) as daemon:
            await daemon.apply(Batch([Put("a", b"1")]))
            async with opened(server.open(read_only=True)) as reader:
                assert await reader.scan("") == [("a", b"1")]
                with pytest.raises(BackendUnavailableError, match="reading only"):
                    await reader.apply(Batch([Put("a", b"2")]))
                await daemon.apply(Batch([Put("a", b"3")]))
                assert await reader.get("a") == b"3"

    async def test_read_only_open_of_an_empty_database_is_refused_each_time(self, server: NetworkedServer) -> None:
        for _ in range(2):
            with pytest.raises(MetadataError, match="no tierd metadata") as caught:
                await server.open(read_only=True)
            assert "start tierd once" in caught.value.remedy

    async def test_stores_that_open_an_empty_database_at_one_time_share_it(self, server: NetworkedServer) -> None:
        stores = await asyncio.gather(*(server.open() for _ in range(6)))
        await stores[0].apply(Batch([Put("a", b"1")]))
        assert await asyncio.gather(*(store.get("a") for store in stores)) == [b"1"] * 6
        await asyncio.gather(*(store.close() for store in stores))

    async def test_close_waits_for_requested_batches(self, server: NetworkedServer) -> None:
        store = await server.open()
        calls = [asyncio.ensure_future(store.apply(Batch([Put(f"k{n:04}", b"")]))) for n in range(300)]
        await asyncio.sleep(0)
        await store.close()
        assert all(call.done() for call in calls)
        async with opened(server.open()) as store:
            assert len(await store.scan("k")) == 300
