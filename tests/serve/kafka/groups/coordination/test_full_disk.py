"""Groups over a SQLite file in a full state dir: members stay, nothing is answered that is not stored."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from tests.serve.kafka.groups.asked_groups import AskedGroups, FakeConsumer, become_stable, settle
from tierd.metadata.kv import SqliteKeyValueStore

LARGE = "m" * 4000

T = TypeVar("T")


async def _limit(store: SqliteKeyValueStore, pages: int) -> None:
    """Bound the size of the file: beyond it, writes fail as on a full disk (SQLITE_FULL)."""
    connection = store._file._connection
    await asyncio.wrap_future(store._worker.submit(connection.execute, f"PRAGMA max_page_count={pages}"))


async def test_commits_in_a_full_state_dir_are_refused_until_there_is_room_and_members_stay(tmp_path: Path) -> None:
    store = await SqliteKeyValueStore.open(tmp_path / "metadata.db")

    async def commit(offset: int, *, partition: int = 0, metadata: str = LARGE) -> ErrorCode:
        committing = alice.commit(offset, partition=partition, metadata=metadata)
        return await _in_time_of(endpoint, store, committing)

    async with AskedGroups(store).running() as endpoint:
        alice = FakeConsumer(endpoint)
        await _in_time_of(endpoint, store, become_stable(alice, endpoint=endpoint))
        assert await commit(10, metadata="") is ErrorCode.none
        await _limit(store, 1)  # no less than the file has
        answers = set()
        for number in range(4):
            answers.add(await commit(100 + number, partition=number))
            assert await alice.beat() is ErrorCode.none
        assert ErrorCode.coordinator_not_available in answers
        assert answers <= {ErrorCode.none, ErrorCode.coordinator_not_available}
        await _limit(store, 100_000)
        assert await commit(200) is ErrorCode.none
        assert (await endpoint.committed(0)) == {0: 200}
    async with AskedGroups(store).running() as restarted:
        assert (await restarted.committed(0)) == {0: 200}
    await store.close()


async def _in_time_of(endpoint: AskedGroups, store: SqliteKeyValueStore, call: Coroutine[Any, Any, T]) -> T:
    """Let the clock go while a call waits for it, and stand while the file is written."""
    asked = asyncio.create_task(call)
    for _ in range(1000):
        await settle()
        await asyncio.wrap_future(store._worker.submit(bool))  # everything before it is done
        await settle()
        if asked.done():
            break
        endpoint.clock.advance(0.1)
    assert asked.done(), "no answer in 100 s of the clock"
    return await asked
