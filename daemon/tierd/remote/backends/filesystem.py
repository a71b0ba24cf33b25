"""FilesystemObjectStore: objects as files below one directory, for a single host or a shared mount."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar
from uuid import UUID, uuid4

import structlog

from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.model import CHECKSUM_BLOCK_BYTES, ByteRange
from tierd.remote.backends.file_keys import UPLOADS_FOLDER, key_of_path, key_of_upload, path_of_key, path_of_upload
from tierd.remote.backends.file_upload import FileUpload, make_directories, remove_upload, sync_directory
from tierd.remote.object_store import FileBody, ObjectInfo, UnfinishedUpload

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")

_STEP_BYTES = 16 * CHECKSUM_BLOCK_BYTES  # between two steps a cancellation takes effect
_THREADS = 8
_PUBLISH_ATTEMPTS = 5

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class FilesystemObjectStore:
    """An ``ObjectStore`` in the directory ``root``, which is created when it is missing.

    An object is written under a temporary name, synced, and linked to its own name, which never replaces anything.
    Temporary files that a crash left are its unfinished uploads.
    """

    def __init__(self, root: Path, *, new_id: Callable[[], UUID] = uuid4, patience_s: float = 10.0) -> None:
        """``patience_s`` bounds how long a call that was given up waits for the disk to end its last step."""
        self._root = root
        self._patience_s = patience_s
        self._uploads = root / UPLOADS_FOLDER
        self._new_id = new_id
        self._root_seen: tuple[int, int] | None = None  # device and inode: another one is another file system
        self._made: set[Path] = set()  # directories known to be there, unless somebody removed one
        self._buffers: list[memoryview] = []
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tierd-store")

    async def put(self, key: str, body: bytes | FileBody) -> None:
        """Create the object unless the key exists; cancelled, it leaves neither object nor temporary file."""
        final = self._root / path_of_key(key)
        upload = FileUpload(self._uploads, path_of_upload(self._new_id(), key), final, body)
        pace = body.pace if isinstance(body, FileBody) else None
        step = CHECKSUM_BLOCK_BYTES if pace else _STEP_BYTES
        stored = False
        try:
            while not stored:
                if pace:
                    await pace(min(step, upload.remaining_bytes))
                stored = await self._run(self._advance, upload, step)
        finally:
            upload.abandon()
            await self._settled(self._submit(upload.close))

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end."""
        return await self._run(_read, self._root / path_of_key(key), byte_range)

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object, without a checksum: that would read all of it."""
        return ObjectInfo(key, await self._run(_size, self._root / path_of_key(key)))

    async def delete(self, key: str) -> None:
        """Remove the object, and directories that are empty then."""
        await self._run(self._delete, self._root / path_of_key(key))

    async def list_objects(self, prefix: str) -> list[ObjectInfo]:
        """Return every object whose key begins with ``prefix``, in order of key."""
        return await self._run(self._list_objects, prefix)

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return temporary files of keys that begin with ``prefix``; ``initiated_ms`` is their last write."""
        return await self._run(self._list_uploads, prefix)

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Remove a temporary file."""
        path = self._uploads / path_of_upload(UUID(hex=upload.upload_id), upload.key)
        await self._run(remove_upload, path, self._uploads)

    async def check(self) -> None:
        """Raise unless a file can be written below ``root``."""
        await self._run(self._check)

    async def close(self) -> None:
        """Let running steps end in the background."""
        self._threads.shutdown(wait=False)

    # ------------------------------------------------------------ blocking, in threads

    def _advance(self, upload: FileUpload, size_bytes: int) -> bool:
        """Take the upload one step further. Return whether it has ended: the object is there, with this content."""
        self._require_same_root()
        with self._buffer() as buffer:
            upload.write(size_bytes, buffer)
            self._root_seen = self._root_seen or self._root_identity()
            if upload.remaining_bytes:
                return False
            self._publish(upload, buffer)
        return True

    def _publish(self, upload: FileUpload, buffer: memoryview) -> None:
        for attempt in range(1, _PUBLISH_ATTEMPTS + 1):
            try:
                self._ensure_directory(upload.final.parent)
                if upload.publish() or upload.same_content_as_final(buffer):
                    return
            except FileNotFoundError:  # the directory was removed as empty, or the object deleted, a moment ago
                self._made.difference_update(upload.final.parents)
                if attempt == _PUBLISH_ATTEMPTS:
                    raise
            else:
                raise RemoteConflictError(
                    f"{upload.final} exists already, with other content",
                    remedy="find out who wrote it; tierd never replaces an object",
                )

    def _require_same_root(self) -> None:
        """Raise when the directory is not the one that this process began with: its mount went away, or another came.

        What is written below an empty mount point fills the wrong disk and is hidden when the mount is back.
        """
        if self._root_seen and self._root_identity() != self._root_seen:
            raise RetriableRemoteStorageError(
                f"{self._root} is not the directory that it was",
                remedy="mount the tier again; restart tierd if the directory was replaced on purpose",
            )

    def _root_identity(self) -> tuple[int, int] | None:
        try:
            status = self._root.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _ensure_directory(self, directory: Path) -> None:
        if directory in self._made:
            return
        if directory == self._root:
            make_directories(directory)
        else:
            self._ensure_directory(directory.parent)
            with contextlib.suppress(FileExistsError):
                directory.mkdir()
            sync_directory(directory.parent)  # also when it exists: who made it may have died before this
        self._made.add(directory)

    def _delete(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
            sync_directory(path.parent)
        directory = path.parent
        while directory != self._root:
            self._made.discard(directory)
            try:
                directory.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return  # not empty
            directory = directory.parent

    def _list_objects(self, prefix: str) -> list[ObjectInfo]:
        folder, _, _ = prefix.rpartition("/")
        top = self._root / path_of_key(folder) if folder else self._root
        found = (
            ObjectInfo(key, size)
            for path, size, _ in _walk(top)
            if path.relative_to(self._root).parts[0] != UPLOADS_FOLDER
            and (key := key_of_path(path.relative_to(self._root))).startswith(prefix)
        )
        return sorted(found, key=lambda info: info.key)

    def _list_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        found = []
        for path, _, mtime_ns in _walk(self._uploads):
            relative = path.relative_to(self._uploads)
            key = key_of_upload(relative)
            if key is not None and key.startswith(prefix):
                upload_id = relative.parts[0].partition(".")[0]
                found.append(UnfinishedUpload(key, upload_id, mtime_ns // 1_000_000))
        return sorted(found, key=lambda upload: (upload.key, upload.upload_id))

    def _check(self) -> None:
        make_directories(self._uploads)
        probe = self._uploads / f"check-{self._new_id().hex}"
        try:
            probe.touch(exist_ok=False)
        finally:
            probe.unlink(missing_ok=True)

    @contextmanager
    def _buffer(self) -> Iterator[memoryview]:
        """Lend one of the few buffers, at most as many as there are threads."""
        try:
            buffer = self._buffers.pop()  # not after a look: another thread may take the last one in between
        except IndexError:
            buffer = memoryview(bytearray(CHECKSUM_BLOCK_BYTES))
        try:
            yield buffer
        finally:
            self._buffers.append(buffer)

    # ------------------------------------------------------------ from the loop to the threads

    def _submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **kwargs))

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call; when cancelled, first wait for the step that is running."""
        future = self._submit(call, *args, **kwargs)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await self._settled(future)
            raise
        except OSError as error:
            raise _translated(error, self._root) from error

    async def _settled(self, step: asyncio.Future[T]) -> None:
        """Wait for a step whose answer nobody wants, but not for ever: a mount whose server is away never answers."""
        await asyncio.wait({step}, timeout=self._patience_s)
        if not step.done():
            log.warning("store_step_left_behind", root=str(self._root), waited_s=self._patience_s)
        step.add_done_callback(_forget)


def _forget(step: asyncio.Future[T]) -> None:
    if not step.cancelled():
        step.exception()  # looked at: what failed before is reported


def _translated(error: OSError, root: Path) -> RemoteStorageError:
    cause = f"{error.filename or root}: {error.strerror or error}"
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return RemoteResourceNotFoundError(f"{cause}: no such object")
    if error.errno in _FULL:
        return RetriableRemoteStorageError(
            f"the tier's disk is full: {cause}", remedy=f"free or add space below {root}; tierd goes on by itself then"
        )
    if error.errno in _REFUSED:
        return RemoteAccessError(
            f"the tier's directory cannot be used: {cause}",
            remedy=f"mount it writable and let user id {os.geteuid()} read and write below {root}",
        )
    if error.errno == errno.ENAMETOOLONG:
        return RemoteStorageError(f"a key is too long for this file system: {cause}", remedy="use a shorter key_prefix")
    return RetriableRemoteStorageError(f"the tier's disk fails: {cause}", remedy=f"check the disk and mount of {root}")


def _read(path: Path, byte_range: ByteRange | None) -> bytes:
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        wanted = (ByteRange.of_size(0, size) if size else None) if byte_range is None else byte_range.clipped(size)
        return os.pread(file.fileno(), wanted.size, wanted.start) if wanted else b""


def _size(path: Path) -> int:
    status = path.stat()
    if not path.is_file():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return status.st_size


def _walk(top: Path) -> Iterator[tuple[Path, int, int]]:
    """Every regular file below ``top``: path, size, and time of the last write in nanoseconds."""
    pending = [top]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed meanwhile, or never there
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield Path(entry.path), status.st_size, status.st_mtime_ns
