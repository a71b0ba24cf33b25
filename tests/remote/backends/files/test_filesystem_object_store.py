import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteStorageError,
    RemoteStorageFullError,
    RetriableRemoteStorageError,
)
from tierd.remote import UnfinishedUpload
from tierd.remote.backends.files import FilesystemObjectStore
from tierd.remote.backends.files.file_keys import UPLOADS_FOLDER
from tierd.testing import ObjectStoreContract, ObjectVersionsContract, content_of, file_body


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tier"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[FilesystemObjectStore]:
    store = FilesystemObjectStore(root)
    yield store
    await store.close()


class TestFilesystemObjectStore(ObjectStoreContract, ObjectVersionsContract):
    @pytest.fixture
    async def store(self, root: Path) -> AsyncIterator[FilesystemObjectStore]:
        store = FilesystemObjectStore(root)
        yield store
        await store.close()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def temporary_files(root: Path) -> list[Path]:
    return [path for path in (root / UPLOADS_FOLDER).rglob("*") if path.is_file()]


async def test_an_object_is_a_plain_file_under_its_key(store: FilesystemObjectStore, root: Path) -> None:
    await store.put("cluster/orders-x/0/1.log", b"content")
    assert (root / "cluster/orders-x/0/1.log").read_bytes() == b"content"
    assert temporary_files(root) == []


@pytest.mark.parametrize("key", ["../escaped", "/escaped", "a/../../escaped", f"{UPLOADS_FOLDER}/escaped", "a//b", "."])
async def test_no_key_leaves_the_root(store: FilesystemObjectStore, root: Path, key: str) -> None:
    outside = set(root.parent.rglob("*"))
    await store.put(key, b"content")
    assert await store.get(key) == b"content"
    assert {path for path in root.parent.rglob("*") if not path.is_relative_to(root)} == outside
    assert [info.key for info in await store.list_objects("")] == [key]


async def test_bytes_are_durable_before_the_name_and_the_name_before_success(
    store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps: list[str] = []
    sync, link = os.fsync, Path.hardlink_to

    def noting_fsync(file: int) -> None:
        target = Path(f"/proc/self/fd/{file}").readlink()
        steps.append(f"sync {'name' if target.is_dir() else 'bytes'}")
        sync(file)

    def noting_link(self: Path, target: Path) -> None:
        steps.append("link")
        link(self, target)

    await store.put("a/before", b"")  # the directory is there already
    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(Path, "hardlink_to", noting_link)
    await store.put("a/key", file_body(tmp_path / "segment", content_of(100)))
    assert steps == ["sync bytes", "link", "sync name"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
async def test_rename_without_hard_links_replaces_no_object(
    store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code), str(self), None, str(target))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    await store.put("key", b"content")
    await store.put("key", b"content")
    with pytest.raises(RemoteConflictError):
        await store.put("key", b"another")
    assert await store.get("key") == b"content"
    assert temporary_files(root) == []


@pytest.mark.parametrize("key", ["cluster/t-x/0/1.log", "long/" * 120 + "key"])
async def test_temporary_file_of_a_crash_is_an_unfinished_upload(
    store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    def crash(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as crashing:
        crashing.setattr("tierd.remote.backends.files.file_upload.FileUpload.close", lambda _: None)
        crashing.setattr(Path, "hardlink_to", crash)
        task = asyncio.create_task(_put(store, key))
        await asyncio.wait({task})
        assert isinstance(task.exception(), KeyboardInterruptSeenError)
    [upload] = await store.list_unfinished_uploads(key[:4])
    assert upload.key == key
    assert upload.initiated_ms > 1_600_000_000_000
    assert await store.list_unfinished_uploads("another") == []
    assert await store.list_objects("") == []
    await store.abort_upload(upload)
    await store.abort_upload(upload)
    assert await store.list_unfinished_uploads("") == []
    assert list((root / UPLOADS_FOLDER).iterdir()) == []
    await store.put(key, b"content")


class KeyboardInterruptSeenError(Exception):
    """A crash, in a form that does not end the test run."""


async def _put(store: FilesystemObjectStore, key: str) -> None:
    try:
        await store.put(key, b"content")
    except KeyboardInterrupt as crash:
        raise KeyboardInterruptSeenError from crash


async def test_put_on_a_full_disk_fails_and_leaves_no_file(
    store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write, left = os.write, 2 << 20

    def write_until_full(file: int, data: memoryview) -> int:
        nonlocal left
        if left < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left -= len(data)
        return write(file, data)

    body = file_body(tmp_path / "segment", content_of(3 << 20))
    with monkeypatch.context() as full:
        full.setattr("tierd.remote.backends.files.file_upload.os.write", write_until_full)
        with pytest.raises(RetriableRemoteStorageError, match="disk is full") as refused:
            await store.put("key", body)
    assert str(root) in refused.value.remedy
    assert temporary_files(root) == []
    assert await store.list_objects("") == []
    await store.put("key", body)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.EDQUOT, RemoteStorageFullError, "full"),
        (errno.EROFS, RemoteAccessError, "cannot be used"),
        (errno.EACCES, RemoteAccessError, "cannot be used"),
        (errno.EIO, RetriableRemoteStorageError, "disk fails"),
        (errno.ENAMETOOLONG, RemoteStorageError, "too long"),
    ],
)
async def test_refusal_of_the_disk_is_reported_with_a_next_step(
    store: FilesystemObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    kind: type[RemoteStorageError],
    words: str,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code), "/tier/x")

    monkeypatch.setattr("tierd.remote.backends.files.filesystem_object_store.make_directories", refuse)
    with pytest.raises(kind, match=words) as refused:
        await store.check()
    assert type(refused.value) is kind
    assert "/tier/x" in str(refused.value)
    assert refused.value.remedy


async def test_a_key_too_long_for_the_file_system_is_refused(store: FilesystemObjectStore) -> None:
    with pytest.raises(RemoteStorageError, match="too long"):
        await store.put("x" * 300, b"content")


async def test_a_directory_that_was_removed_is_made_again(store: FilesystemObjectStore, root: Path) -> None:
    await store.put("a/b/first", b"content")
    shutil.rmtree(root / "a")
    await store.put("a/b/second", b"content")
    assert [info.key for info in await store.list_objects("")] == ["a/b/second"]


async def test_directories_are_removed_with_their_last_object(store: FilesystemObjectStore, root: Path) -> None:
    await store.put("a/b/c/key", b"content")
    await store.put("a/other", b"content")
    await store.delete("a/b/c/key")
    assert names_in(root / "a") == ["other"]


async def test_puts_and_deletes_in_one_directory_at_one_time_succeed(store: FilesystemObjectStore) -> None:
    async def come_and_go(name: str) -> None:
        for _ in range(20):
            await store.put(f"a/b/{name}", b"content")
            await store.delete(f"a/b/{name}")

    await asyncio.gather(*(come_and_go(str(n)) for n in range(6)))
    assert await store.list_objects("") == []


async def test_put_succeeds_while_another_thread_makes_the_root(
    store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root_identity = store._root_identity

    def made_meanwhile() -> tuple[int, int] | None:
        found = root_identity()
        root.mkdir(exist_ok=True)
        store._root_seen = root_identity()
        return found

    monkeypatch.setattr(store, "_root_identity", made_meanwhile)
    await store.put("first", b"content")
    assert await store.get("first") == b"content"


async def test_directories_that_a_killed_process_made_are_synced_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a/b").mkdir(parents=True)  # ... and died before it synced their names
    synced: set[Path] = set()
    sync = os.fsync

    def noting_fsync(file: int) -> None:
        synced.add(Path(f"/proc/self/fd/{file}").readlink())
        sync(file)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    store = FilesystemObjectStore(root)
    await store.put("a/b/key", b"content")
    await store.close()
    assert {root, root / "a", root / "a/b"} <= synced


async def test_a_disk_that_hangs_does_not_hold_the_caller_and_publishes_nothing_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, answering, sync = threading.Event(), threading.Event(), os.fsync

    def hang(file: int) -> None:
        hanging.set()
        assert answering.wait(timeout=30)
        sync(file)

    store = FilesystemObjectStore(root, patience_s=0.01)
    monkeypatch.setattr(os, "fsync", hang)
    putting = asyncio.create_task(store.put("key", b"content"))
    assert await asyncio.to_thread(hanging.wait, 30)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(putting, timeout=10)
    answering.set()
    await asyncio.to_thread(store._threads.shutdown)
    assert names_in(root) == [UPLOADS_FOLDER]
    assert temporary_files(root) == []


async def test_a_buffer_that_another_thread_took_first_is_no_failure(store: FilesystemObjectStore) -> None:
    class Contended(list[memoryview]):
        def __bool__(self) -> bool:
            return True  # and empty a moment later

    store._buffers = Contended()
    await store.put("key", b"content")
    assert await store.get("key") == b"content"


async def test_a_directory_is_no_object(store: FilesystemObjectStore) -> None:
    await store.put("a/b", b"content")
    for missing in ("a", "a/b/c"):
        with pytest.raises(LookupError):
            await store.get(missing)
        with pytest.raises(LookupError):
            await store.head(missing)
        await store.delete("a/b/c")
    assert await store.get("a/b") == b"content"


async def test_a_check_makes_the_root_and_leaves_no_file(store: FilesystemObjectStore, root: Path) -> None:
    await store.check()
    assert names_in(root) == [UPLOADS_FOLDER]
    assert temporary_files(root) == []


async def test_put_is_refused_when_the_mount_of_the_root_went_away(store: FilesystemObjectStore, root: Path) -> None:
    await store.put("before", b"x")
    away = root.with_name("away")
    root.rename(away)
    with pytest.raises(RetriableRemoteStorageError, match="not the directory that it was"):
        await store.put("lost", b"x")
    root.mkdir()  # the empty mount point
    with pytest.raises(RetriableRemoteStorageError, match="not the directory that it was"):
        await store.put("lost", b"x")
    assert list(root.iterdir()) == []
    root.rmdir()
    away.rename(root)
    await store.put("after", b"x")
    assert await store.get("before") == b"x"


Call = Callable[[FilesystemObjectStore], Awaitable[object]]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get("before"),
        lambda store: store.head("before"),
        lambda store: store.list_objects(""),
        lambda store: store.list_versions(""),
        lambda store: store.list_unfinished_uploads(""),
        lambda store: store.delete("before"),
        lambda store: store.abort_upload(UnfinishedUpload("before", "0" * 32, 0)),
        lambda store: store.check(),
    ],
    ids=["get", "head", "list", "list_versions", "list_uploads", "delete", "abort", "check"],
)
@pytest.mark.parametrize("is_mount_point_there", [True, False], ids=["empty mount point", "nothing"])
async def test_tier_whose_mount_went_away_has_no_answer(
    call: Call, is_mount_point_there: bool, store: FilesystemObjectStore, root: Path
) -> None:
    await store.put("before", b"x")
    away = root.with_name("away")
    root.rename(away)
    if is_mount_point_there:
        root.mkdir()
    with pytest.raises(RetriableRemoteStorageError, match="not the directory that it was"):
        await call(store)
    assert not is_mount_point_there or list(root.iterdir()) == []
    assert (away / "before").read_bytes() == b"x"


@pytest.mark.parametrize("call", [lambda store: store.get("before"), lambda store: store.head("before")])
async def test_tier_that_was_only_read_is_not_written_beside_its_mount(call: Call, root: Path) -> None:
    filled, store = FilesystemObjectStore(root), FilesystemObjectStore(root)
    await filled.put("before", b"x")
    await call(store)
    root.rename(root.with_name("away"))
    root.mkdir()
    with pytest.raises(RetriableRemoteStorageError, match="not the directory that it was"):
        await store.put("lost", b"x")
    assert list(root.iterdir()) == []
    await filled.close()
    await store.close()
