"""Contract suite of every KeyValueStore.

Subclass it and provide two fixtures: ``store``, and ``other``, a second client of the same data, as another process
would have it; the store itself where there can be none.
"""

import asyncio
from uuid import UUID

import pytest

from tierd.errors import PreconditionFailedError, TierError
from tierd.metadata import (
    Batch,
    Delete,
    DeletePrefix,
    Expect,
    ExpectPresent,
    KeyValueStore,
    MetadataKeyFactory,
    Put,
)
from tierd.model import TopicIdPartition
from tierd.testing.cancellation import cancel_at
from tierd.testing.conformance import conformance

KEYS = MetadataKeyFactory("cluster")


@pytest.mark.asyncio
class KeyValueStoreContract:
    """Contract of a ``KeyValueStore``. Every test gets an empty store."""

    async def test_a_key_that_was_never_written_has_no_value(self, store: KeyValueStore) -> None:
        assert await store.get("a") is None

    @conformance.spec("remote-tiering 75")
    @pytest.mark.parametrize("value", [b"one", b"", bytes(range(256)), b"x" * 300_000])
    async def test_a_written_value_is_read_back_byte_for_byte(self, store: KeyValueStore, value: bytes) -> None:
        await store.apply(Batch([Put("a", value)]))
        assert await store.get("a") == value

    @conformance.spec("remote-tiering 76")
    async def test_a_second_put_replaces_the_value(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Put("a", b"one")]))
        await store.apply(Batch([Put("a", b"two")]))
        assert await store.get("a") == b"two"

    @conformance.spec("remote-tiering 77")
    async def test_a_replacement_of_what_is_not_there_is_refused(self, store: KeyValueStore) -> None:
        with pytest.raises(PreconditionFailedError) as caught:
            await store.apply(Batch([Put("a", b"two")], [Expect("a", b"one")]))
        assert (caught.value.key, caught.value.actual) == ("a", None)
        assert await store.get("a") is None

    @conformance.spec("remote-tiering 78")
    async def test_the_writes_of_a_batch_happen_in_order(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Put("a", b"1"), Put("b", b"2"), Put("a", b"3"), Put("c", b"4"), Delete("c")]))
        assert await store.scan("") == [("a", b"3"), ("b", b"2")]

    @conformance.spec("remote-tiering 79")
    @conformance.spec("remote-tiering 85")
    async def test_a_failed_precondition_leaves_nothing_written_and_names_its_key(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Put("held", b"theirs"), Put("old", b"kept")]))
        batch = Batch([Put("new", b"x"), Delete("old")], [Expect("old", b"kept"), Expect("held", b"ours")])
        with pytest.raises(PreconditionFailedError, match="held") as caught:
            await store.apply(batch)
        assert (caught.value.key, caught.value.actual) == ("held", b"theirs")
        assert await store.scan("") == [("held", b"theirs"), ("old", b"kept")]

    async def test_a_key_expected_to_be_absent_is_created_once(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Put("a", b"first")], [Expect("a", None)]))
        with pytest.raises(PreconditionFailedError) as caught:
            await store.apply(Batch([Put("a", b"second")], [Expect("a", None)]))
        assert caught.value.actual == b"first"

    async def test_an_empty_value_is_not_an_absent_one(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Put("a", b"")]))
        with pytest.raises(PreconditionFailedError):
            await store.apply(Batch([], [Expect("a", None)]))
        await store.apply(Batch([Put("a", b"x")], [Expect("a", b"")]))
        assert await store.get("a") == b"x"

    async def test_deleting_what_is_absent_is_no_error(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Delete("a"), Put("b", b"1")]))
        assert await store.scan("") == [("b", b"1")]

    @conformance.spec("remote-tiering 80")
    async def test_a_scan_returns_what_lies_below_its_prefix_in_byte_order(self, store: KeyValueStore) -> None:
        keys = ["v/2/b", "v/10/a", "v/1/b", "v/1/a", "v/1", "v/1/", "v/1/~", "u/9", "w", "v/1/A"]
        await store.apply(Batch([Put(key, key.encode()) for key in keys]))
        expected = ["v/1/", "v/1/A", "v/1/a", "v/1/b", "v/1/~"]
        assert await store.scan("v/1/") == [(key, key.encode()) for key in expected]
        assert [key for key, _ in await store.scan("")] == sorted(keys)
        assert await store.scan("v/3/") == []

    @conformance.spec("remote-tiering 84")
    @pytest.mark.parametrize("wildcard", ["_", "%", "*", "?", "[a]", "\\"])
    async def test_no_character_of_a_prefix_is_a_wildcard(self, store: KeyValueStore, wildcard: str) -> None:
        await store.apply(Batch([Put("axb/1", b"other"), Put(f"a{wildcard}b/1", b"own")]))
        assert await store.scan(f"a{wildcard}b/") == [(f"a{wildcard}b/1", b"own")]

    @conformance.spec("remote-tiering 81")
    @conformance.spec("remote-tiering 83")
    async def test_rows_that_a_scan_found_can_be_deleted_and_the_rest_stays(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Put(f"t/{number}/x", b"1") for number in (1, 10, 11)]))
        found = await store.scan("t/1/")
        await store.apply(Batch([Delete(key) for key, _ in found]))
        assert [key for key, _ in await store.scan("t/")] == ["t/10/x", "t/11/x"]

    @conformance.spec("remote-tiering 75")
    async def test_create_writes_absent_key_and_refuses_present_one(self, store: KeyValueStore) -> None:
        await store.create("a", b"")
        with pytest.raises(PreconditionFailedError) as caught:
            await store.create("a", b"second")
        assert (caught.value.key, caught.value.actual) == ("a", b"")
        assert await store.get("a") == b""

    @conformance.spec("remote-tiering 76")
    @conformance.spec("remote-tiering 77")
    async def test_update_replaces_present_key_and_refuses_absent_one(self, store: KeyValueStore) -> None:
        with pytest.raises(PreconditionFailedError) as caught:
            await store.update("a", b"1")
        assert (caught.value.key, caught.value.actual) == ("a", None)
        assert await store.scan("") == []
        await store.create("a", b"")
        await store.update("a", b"2")
        assert await store.get("a") == b"2"

    @conformance.spec("remote-tiering 81")
    @conformance.spec("remote-tiering 83")
    async def test_remove_prefix_removes_what_lies_below_it_and_nothing_else(self, store: KeyValueStore) -> None:
        kept = ["t/1", "t/1-x", "t/10/x", "t/11/x", "t/1.", "t/10", "u", "t0"]
        removed = ["t/1/", "t/1/a", "t/1/b/c", "t/1/~"]
        await store.apply(Batch([Put(key, b"v") for key in (*kept, *removed)]))
        await store.remove_prefix("t/1/")
        assert [key for key, _ in await store.scan("")] == sorted(kept)
        await store.remove_prefix("t/1/")
        assert [key for key, _ in await store.scan("")] == sorted(kept)

    @conformance.spec("remote-tiering 84")
    @pytest.mark.parametrize("wildcard", ["_", "%", "*", "?", "[a]", "\\"])
    async def test_remove_prefix_takes_every_character_literally(self, store: KeyValueStore, wildcard: str) -> None:
        await store.apply(Batch([Put("axb/1", b"other"), Put(f"a{wildcard}b/1", b"own")]))
        await store.remove_prefix(f"a{wildcard}b/")
        assert await store.scan("") == [("axb/1", b"other")]

    async def test_prefix_is_removed_in_the_order_of_the_writes_of_its_batch(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Put("t/old", b"1"), Put("t/kept", b"1"), Put("u", b"1")]))
        writes: list[Put | Delete | DeletePrefix] = [
            Put("t/gone", b"2"),
            Put("v", b"2"),
            DeletePrefix("t/"),
            Put("t/kept", b"3"),
            Delete("u"),
        ]
        await store.apply(Batch(writes, [Expect("t/old", b"1")]))
        assert await store.scan("") == [("t/kept", b"3"), ("v", b"2")]
        await store.apply(Batch([DeletePrefix("t/"), Put("t/a", b"4"), DeletePrefix("t/a"), Put("t/b", b"4")]))
        assert await store.scan("t/") == [("t/b", b"4")]

    async def test_batch_that_is_refused_removes_no_prefix(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Put("t/1", b"1"), Put("t/2", b"1")]))
        for expected in (ExpectPresent("absent"), Expect("t/1", b"other")):
            with pytest.raises(PreconditionFailedError) as caught:
                await store.apply(Batch([DeletePrefix("t/"), Put("new", b"1")], [ExpectPresent("t/2"), expected]))
            assert caught.value.key == expected.key
        assert await store.scan("") == [("t/1", b"1"), ("t/2", b"1")]

    async def test_removals_and_writes_asked_for_in_order_are_applied_in_order(self, store: KeyValueStore) -> None:
        async with asyncio.timeout(60):
            calls = []
            for number in range(30):
                calls += [
                    store.apply(Batch([Put("t/x", str(number).encode()), Put(f"t/{number}", b"")])),
                    store.apply(Batch([DeletePrefix("t/"), Put(f"u/{number}", b"")])),
                    store.create("t/y", b""),
                ]
            await asyncio.gather(*calls)
        assert await store.scan("t/") == [("t/y", b"")]
        assert len(await store.scan("u/")) == 30

    async def test_prefix_of_thousands_of_rows_is_removed_at_once(
        self, store: KeyValueStore, other: KeyValueStore
    ) -> None:
        keys = [f"k{number:05}" for number in range(2500)]
        await store.apply(Batch([Put(key, b"v") for key in keys]))
        removal = asyncio.ensure_future(store.remove_prefix("k"))
        seen = set()
        while not removal.done():
            seen.add(len(await other.scan("k")))
        await removal
        assert seen <= {0, len(keys)}
        assert await other.scan("k") == []

    async def test_of_clients_that_update_and_remove_a_prefix_none_brings_a_row_back(
        self, store: KeyValueStore, other: KeyValueStore
    ) -> None:
        for number in range(20):
            prefix = f"t/{number}/"
            await store.apply(Batch([Put(f"{prefix}row", b"1"), Put(f"{prefix}seg", b"1")]))
            update = Batch([Put(f"{prefix}seg", b"2")], [ExpectPresent(f"{prefix}row")])
            outcomes = await asyncio.gather(store.remove_prefix(prefix), other.apply(update), return_exceptions=True)
            assert outcomes[0] is None
            assert outcomes[1] is None or isinstance(outcomes[1], PreconditionFailedError)
            assert await store.scan(prefix) == []

    async def test_removal_that_is_cancelled_leaves_all_or_nothing(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Put("t/1", b""), Put("t/2", b"")]))
        suspension = 1
        while await cancel_at(suspension, lambda: store.remove_prefix("t/")):
            assert len(await store.scan("t/")) in {0, 2}
            suspension += 1
        assert await store.scan("t/") == []

    @conformance.spec("remote-tiering 82")
    async def test_reading_several_keys_leaves_the_absent_ones_out(self, store: KeyValueStore) -> None:
        keys = [f"k{number:04}" for number in range(1200)]
        await store.apply(Batch([Put(key, key.encode()) for key in keys]))
        wanted = ["absent", *reversed(keys)]
        assert await store.get_many(wanted) == {key: key.encode() for key in keys}
        assert await store.get_many([]) == {}

    async def test_of_writers_who_expect_the_same_value_one_wins_each_round(self, store: KeyValueStore) -> None:
        async def increment() -> int:
            failures = 0
            while True:
                value = await store.get("counter")
                successor = Put("counter", str(int(value or b"0") + 1).encode())
                try:
                    await store.apply(Batch([successor], [Expect("counter", value)]))
                except PreconditionFailedError:
                    failures += 1
                else:
                    return failures

        failures = await asyncio.gather(*(increment() for _ in range(20)))
        assert await store.get("counter") == b"20"
        assert sum(failures) > 0

    async def test_batches_asked_for_in_order_are_applied_in_order(self, store: KeyValueStore) -> None:
        await asyncio.gather(*(store.apply(Batch([Put("last", str(n).encode())])) for n in range(100)))
        assert await store.get("last") == b"99"

    async def test_one_refused_batch_does_not_harm_those_beside_it(self, store: KeyValueStore) -> None:
        batches = [Batch([Put(f"k{n}", b"v")], [Expect("absent", b"x")] if n % 3 == 0 else []) for n in range(30)]
        outcomes = await asyncio.gather(*map(store.apply, batches), return_exceptions=True)
        refused = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, PreconditionFailedError)]
        assert refused == [n for n in range(30) if n % 3 == 0]
        assert {key for key, _ in await store.scan("k")} == {f"k{n}" for n in range(30) if n % 3}

    async def test_row_that_one_client_wrote_is_read_by_another(
        self, store: KeyValueStore, other: KeyValueStore
    ) -> None:
        await store.apply(Batch([Put("a", b"1")]))
        assert await other.get("a") == b"1"
        await other.apply(Batch([Put("a", b"2"), Put("b", b"3")]))
        assert await store.get_many(["a", "b"]) == {"a": b"2", "b": b"3"}
        assert await store.scan("") == [("a", b"2"), ("b", b"3")]

    async def test_of_two_clients_that_make_the_same_key_exactly_one_wins(
        self, store: KeyValueStore, other: KeyValueStore
    ) -> None:
        for number in range(50):
            key = f"row/{number}"
            batches = [Batch([Put(key, name), Put(f"{key}/index", name)], [Expect(key, None)]) for name in (b"1", b"2")]
            outcomes = await asyncio.gather(store.apply(batches[0]), other.apply(batches[1]), return_exceptions=True)
            (winner,) = (name for name, outcome in zip((b"1", b"2"), outcomes, strict=True) if outcome is None)
            (refused,) = (outcome for outcome in outcomes if outcome is not None)
            assert isinstance(refused, PreconditionFailedError)
            assert (refused.key, refused.actual) == (key, winner)
            assert await store.scan(key) == [(key, winner), (f"{key}/index", winner)]

    async def test_of_two_clients_that_change_the_same_value_one_wins_each_round(
        self, store: KeyValueStore, other: KeyValueStore
    ) -> None:
        async def increment(client: KeyValueStore) -> None:
            while True:
                value = await client.get("counter")
                successor = Put("counter", str(int(value or b"0") + 1).encode())
                try:
                    return await client.apply(Batch([successor], [Expect("counter", value)]))
                except PreconditionFailedError:
                    continue

        await asyncio.gather(*(increment(client) for client in (store, other) for _ in range(8)))
        assert await other.get("counter") == b"16"

    async def test_clients_that_write_the_same_keys_in_opposite_orders_all_succeed(
        self, store: KeyValueStore, other: KeyValueStore
    ) -> None:
        keys = [f"k{number}" for number in range(20)]

        def batch(client: int, turn: int, order: int) -> Batch:
            return Batch([Put(key, f"{client} {turn}".encode()) for key in keys[::order]])

        async with asyncio.timeout(20):
            for turn in range(20):
                await asyncio.gather(store.apply(batch(1, turn, 1)), other.apply(batch(2, turn, -1)))
                assert len(set((await store.get_many(keys)).values())) == 1

    @pytest.mark.parametrize("rows", [20, 2500])
    async def test_scan_and_read_of_many_keys_see_one_moment(
        self, store: KeyValueStore, other: KeyValueStore, rows: int
    ) -> None:
        first, last = f"k{0:05}", f"k{rows:05}"
        await store.apply(Batch([Put(f"k{number:05}", b"0") for number in range(rows + 1)]))
        done = False

        async def write() -> None:
            turn = 0
            while not done:
                turn += 1
                value = str(turn).encode()
                there, gone = (f"k{rows // 2:05}/x", f"k{rows:05}/x")[:: 1 if turn % 2 else -1]
                await other.apply(Batch([Put(first, value), Put(last, value), Put(there, b""), Delete(gone)]))

        writing = asyncio.create_task(write())
        for _ in range(10):
            found = await store.scan("k")
            pairs = dict(found)
            assert pairs[first] == pairs[last]
            moving = f"k{rows // 2:05}/x" if int(pairs[first]) % 2 else f"k{rows:05}/x"
            assert {key for key in pairs if key.endswith("/x")} == ({moving} if pairs[first] != b"0" else set())
            assert [key for key, _ in found] == sorted(pairs)
            looked_up = await store.get_many([f"k{number:05}" for number in range(rows + 1)])
            assert len(looked_up) == rows + 1
            assert looked_up[first] == looked_up[last]
        done = True
        await writing

    async def test_a_cancelled_batch_leaves_the_store_usable(self, store: KeyValueStore) -> None:
        suspension = 1
        while await cancel_at(suspension, lambda: store.apply(Batch([Put("a", b"1"), Put("b", b"1")]))):
            assert len(await store.scan("")) in {0, 2}
            suspension += 1
        assert await store.scan("") == [("a", b"1"), ("b", b"1")]

    async def test_a_cancelled_read_leaves_the_store_usable(self, store: KeyValueStore) -> None:
        await store.apply(Batch([Put("a", b"1")]))
        for call in (lambda: store.get("a"), lambda: store.get_many(["a"]), lambda: store.scan("")):
            suspension = 1
            while await cancel_at(suspension, call):
                assert await store.get("a") == b"1"
                suspension += 1

    async def test_a_batch_of_thousands_of_rows_is_one(self, store: KeyValueStore) -> None:
        writes = [Put(f"k{number:05}", bytes(100)) for number in range(5000)]
        with pytest.raises(PreconditionFailedError):
            await store.apply(Batch(writes, [Expect("absent", b"")]))
        assert await store.scan("k") == []
        await store.apply(Batch(writes))
        assert [key for key, _ in await store.scan("k")] == [write.key for write in writes]

    async def test_keys_may_hold_any_printable_character(self, store: KeyValueStore) -> None:
        printable = "".join(map(chr, range(0x20, 0x7F)))
        keys = [f"k{character}/x" for character in printable]
        await store.apply(Batch([Put(key, key.encode()) for key in keys], [Expect(key, None) for key in keys]))
        assert await store.scan("k") == [(key, key.encode()) for key in sorted(keys)]
        for key in keys:
            assert await store.scan(key[:-1]) == [(key, key.encode())]

    @conformance.spec("remote-tiering 83")
    @conformance.spec("remote-tiering 84")
    async def test_partitions_and_topics_whose_names_resemble_each_other_are_apart(self, store: KeyValueStore) -> None:
        partitions = [
            TopicIdPartition(topic_id, topic, number)
            for topic_id, topic in ((UUID(int=7), "a_b"), (UUID(int=8), "axb"))
            for number in (1, 10)
        ]
        for partition in partitions:
            segment_key = KEYS.segment(partition, UUID(int=1))
            await store.apply(Batch([Put(KEYS.row(partition), b""), Put(segment_key, str(partition).encode())]))
        for partition in partitions:
            found = await store.scan(KEYS.partition_prefix(partition))
            assert dict(found) == {
                KEYS.row(partition): b"",
                KEYS.segment(partition, UUID(int=1)): str(partition).encode(),
            }
        await store.apply(Batch([Delete(key) for key, _ in await store.scan(KEYS.partition_prefix(partitions[0]))]))
        assert len(await store.scan(KEYS.all_prefix)) == 6

    async def test_after_closing_every_call_is_refused_and_closing_again_is_harmless(
        self, store: KeyValueStore
    ) -> None:
        await store.close()
        await store.close()
        for call in (store.get("a"), store.scan(""), store.get_many(["a"]), store.apply(Batch([Put("a", b"")]))):
            with pytest.raises(TierError) as caught:
                await call
            assert caught.value.retriable
