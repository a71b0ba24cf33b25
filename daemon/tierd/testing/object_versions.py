"""Contract suite of every store with object versions. Subclass the contract and provide a ``store`` fixture."""

import pytest

from tierd.remote import ObjectStore, ObjectVersion


@pytest.mark.asyncio
class ObjectVersionsContract:
    """Contract of a store that may keep versions. Every test gets an empty store."""

    async def test_each_object_is_listed_as_a_current_version(self, store: ObjectStore) -> None:
        await store.put("a/1.log", b"first")
        await store.put("a/2.log", b"")
        await store.put("b/1.log", b"other")
        assert [(v.key, v.size_bytes, v.is_current, v.is_marker) for v in await store.list_versions("a/")] == [
            ("a/1.log", 5, True, False),
            ("a/2.log", 0, True, False),
        ]
        assert await store.list_versions("c/") == []

    async def test_a_deleted_version_is_gone_for_good(self, store: ObjectStore) -> None:
        await store.put("a/1.log", b"first")
        (version,) = await store.list_versions("a/")
        await store.delete_version(version)
        await store.delete_version(version)
        assert await store.list_versions("a/") == []
        assert await store.list_objects("a/") == []


class KeptVersionsContract(ObjectVersionsContract):
    """Contract of a store that keeps versions."""

    async def test_deleted_object_is_listed_until_its_versions_are_deleted(self, store: ObjectStore) -> None:
        await store.put("a/1.log", b"secret")
        await store.put("a/2.log", b"kept")
        await store.delete("a/1.log")
        assert [info.key for info in await store.list_objects("a/")] == ["a/2.log"]
        old = [version for version in await store.list_versions("a/") if version.key == "a/1.log"]
        assert [version.size_bytes for version in old if not version.is_marker] == [6]
        assert not any(version.is_current for version in old if not version.is_marker)
        for version in sorted(old, key=lambda each: each.is_marker):  # without a marker it would be back
            await store.delete_version(version)
        assert [version.key for version in await store.list_versions("a/")] == ["a/2.log"]
        assert await store.get("a/2.log") == b"kept"

    async def test_versions_of_one_key_are_all_listed(self, store: ObjectStore) -> None:
        await store.put("a/1.log", b"1")
        await store.replace("a/1.log", b"22", previous=b"1")
        await store.replace("a/1.log", b"333", previous=b"22")
        found = await store.list_versions("a/")
        assert sorted((version.size_bytes, version.is_current) for version in found) == [
            (1, False),
            (2, False),
            (3, True),
        ]
        assert len({version.version_id for version in found}) == len(found)


async def versions_left(store: ObjectStore, prefix: str = "") -> list[ObjectVersion]:
    """Return the versions that are neither current nor markers."""
    return [
        version for version in await store.list_versions(prefix) if not version.is_current and not version.is_marker
    ]
