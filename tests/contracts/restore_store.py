"""Promises of every ``RestoreStore`` (changelog-restore 3.5). Provide the fixtures ``make_store`` and ``read_content``.

``make_store`` makes a store that is not open, of the same files each time if the store is persistent. ``read_content``
returns what an open store has.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.changelog.restore_store import RestoreStore

MakeStore = Callable[[], RestoreStore]
ReadContent = Callable[[RestoreStore], Mapping[bytes, bytes]]


def batch(*pairs: tuple[bytes, bytes | None], first: int = 0) -> ChangelogRecords:
    """Return records of these keys and values."""
    count = len(pairs)
    return ChangelogRecords(
        offsets=list(range(first, first + count)),
        timestamps_ms=[1000] * count,
        keys=[key for key, _ in pairs],
        values=[value for _, value in pairs],
        headers=[()] * count,
        leader_epochs=[0] * count,
        timestamp_types=["CreateTime"] * count,
    )


class RestoreStoreContract:
    async def test_new_store_is_empty_and_has_no_offset(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store()
        await store.open(tmp_path)
        assert await store.is_empty()
        assert await store.stored_offset() is None
        assert (await store.store_id() is not None) == store.persistent
        await store.close(clean=True)
        await store.close(clean=True)

    async def test_batches_set_and_delete_in_order(
        self, make_store: MakeStore, read_content: ReadContent, tmp_path: Path
    ) -> None:
        store = make_store()
        await store.open(tmp_path)
        await store.restore_batch(batch((b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", b""), (b"b", b"3")), 4)
        await store.restore_batch(batch((b"d", None), (b"", b"empty"), first=5), 6)
        assert read_content(store) == {b"b": b"3", b"c": b"", b"": b"empty"}
        assert not await store.is_empty()
        assert await store.stored_offset() == (6 if store.transactional else None)
        await store.close(clean=True)

    async def test_wipe_leaves_an_open_empty_store_of_another_id(
        self, make_store: MakeStore, read_content: ReadContent, tmp_path: Path
    ) -> None:
        store = make_store()
        await store.open(tmp_path)
        await store.restore_batch(batch((b"a", b"1")), 0)
        before = await store.store_id()
        await store.wipe()
        assert await store.is_empty()
        assert await store.stored_offset() is None
        assert not store.persistent or await store.store_id() not in {before, None}
        await store.restore_batch(batch((b"b", b"2")), 0)
        assert read_content(store) == {b"b": b"2"}
        await store.close(clean=True)

    async def test_persistent_store_keeps_data_offset_and_id(
        self, make_store: MakeStore, read_content: ReadContent, tmp_path: Path
    ) -> None:
        store = make_store()
        await store.open(tmp_path)
        await store.restore_batch(batch((b"a", b"1")), 41)
        store_id = await store.store_id()
        await store.flush()
        await store.close(clean=True)
        again = make_store()
        await again.open(tmp_path)
        if store.persistent:
            assert read_content(again) == {b"a": b"1"}
            assert await again.stored_offset() == (41 if store.transactional else None)
            assert await again.store_id() == store_id
        else:
            assert await again.is_empty()
        await again.close(clean=True)
