"""A filesystem store with pipes, devices and links that another user put there: no call waits, none leaves the root."""

import asyncio
import ctypes
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tierd.errors import RemoteStorageError
from tierd.remote.backends.files import FilesystemObjectStore
from tierd.remote.backends.files.file_keys import UPLOADS_FOLDER
from tierd.remote.backends.files.file_root import anchored

KEY = "cluster/orders/0/1.log"
DEADLINE_S = 30

Call = Callable[[FilesystemObjectStore], Awaitable[object]]
CALLS: dict[str, Call] = {
    "get": lambda store: store.get(KEY),
    "head": lambda store: store.head(KEY),
    "put": lambda store: store.put(KEY, b"content"),
    "replace": lambda store: store.replace(KEY, b"content", previous=b"secret"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tier"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a directory that is none of the store's, with a file under the name of an object."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1.log").write_bytes(b"secret")
    return outside


@pytest.fixture
async def store(root: Path) -> AsyncIterator[FilesystemObjectStore]:
    store = FilesystemObjectStore(root)
    await store.put("cluster/orders/0/0.log", b"before")
    yield store
    await store.close()


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def exchange(one: Path, other: Path) -> None:
    """Exchange two names atomically (renameat2 with RENAME_EXCHANGE)."""
    ctypes.CDLL(None).renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["pipe", "link", "device"])
async def test_pipe_link_or_device_in_place_of_an_object_is_refused_without_waiting(
    store: FilesystemObjectStore, root: Path, outside: Path, kind: str, call: str
) -> None:
    place = root / KEY
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "link":
            place.symlink_to(outside / "1.log")
        case "device":
            place.symlink_to("/dev/zero")
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(RemoteStorageError, match="not a regular file") as refused:
            await CALLS[call](store)
    assert not refused.value.retriable
    assert str(place) in str(refused.value)
    assert content(outside) == {"1.log": b"secret"}


async def test_deletion_of_a_link_in_place_of_an_object_leaves_what_it_leads_to(
    store: FilesystemObjectStore, root: Path, outside: Path
) -> None:
    (root / KEY).symlink_to(outside / "1.log")
    await store.delete(KEY)
    assert not (root / KEY).is_symlink()
    assert content(outside) == {"1.log": b"secret"}


@pytest.mark.parametrize("call", [*CALLS, "delete"])
async def test_link_in_place_of_a_directory_leads_no_call_elsewhere(
    store: FilesystemObjectStore, root: Path, outside: Path, call: str
) -> None:
    (root / "cluster/orders/0").rename(root / "cluster/orders/moved")
    (root / "cluster/orders/0").symlink_to(outside)
    calls = CALLS | {"delete": lambda store: store.delete(KEY)}
    with pytest.raises(RemoteStorageError, match="is a link, not a directory of the store"):
        await calls[call](store)
    assert content(outside) == {"1.log": b"secret"}
    assert [info.key for info in await store.list_objects("cluster/orders/0")] == []


async def test_link_in_place_of_the_folder_of_uploads_leads_no_upload_elsewhere(
    store: FilesystemObjectStore, root: Path, outside: Path
) -> None:
    (root / UPLOADS_FOLDER).rmdir()
    (root / UPLOADS_FOLDER).symlink_to(outside)
    with pytest.raises(RemoteStorageError, match="is a link, not a directory of the store"):
        await store.put(KEY, b"content")
    with pytest.raises(RemoteStorageError):
        await store.check()
    with pytest.raises(RemoteStorageError):
        await store.list_unfinished_uploads("")
    assert content(outside) == {"1.log": b"secret"}


async def test_link_that_takes_turns_with_a_directory_leads_no_object_elsewhere(
    store: FilesystemObjectStore, root: Path, outside: Path
) -> None:
    """Another user exchanges the directory for a link and back, as fast as possible, while objects are put and read."""
    directory, link = root / "cluster/orders/0", root / "cluster/orders/link"
    link.symlink_to(outside)
    stop = threading.Event()

    def take_turns() -> None:
        while not stop.is_set():
            exchange(directory, link)

    attacker = threading.Thread(target=take_turns)
    attacker.start()
    try:
        async with asyncio.timeout(2 * DEADLINE_S):
            for number in range(2, 300):
                with suppress(RemoteStorageError):  # a try that met the link
                    await store.put(f"cluster/orders/0/{number}.log", b"content")
                with suppress(RemoteStorageError):
                    await store.delete(KEY)
                with suppress(RemoteStorageError):
                    assert await store.get(KEY) != b"secret"
    finally:
        stop.set()
        await asyncio.to_thread(attacker.join)
    assert content(outside) == {"1.log": b"secret"}


def test_root_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "real" / "a" / "file").write_bytes(b"content")
    (tmp_path / "tier").symlink_to(tmp_path / "real")
    with anchored(tmp_path / "tier", tmp_path / "tier" / "a" / "file") as place:
        assert place.read_bytes() == b"content"


async def test_objects_and_directories_are_not_for_others_whatever_the_umask(root: Path) -> None:
    previous = os.umask(0)
    try:
        store = FilesystemObjectStore(root)
        await store.check()
        await store.put(KEY, b"content")
        await store.replace(KEY, b"other", previous=b"content")
        await store.close()
    finally:
        os.umask(previous)
    for path in (root, *root.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path
