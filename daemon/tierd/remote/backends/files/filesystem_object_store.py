"""FilesystemObjectStore: objects as files below one directory, for a single host or a shared mount."""

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path, PurePath
from typing import ParamSpec, TypeVar
from uuid import UUID, uuid4

import structlog

from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageFullError,
    RetriableRemoteStorageError,
)
from tierd.files import open_regular, sync_directory
from tierd.model import CHECKSUM_BLOCK_BYTES, ByteRange
from tierd.remote.backends.answers import conflict
from tierd.remote.backends.files.file_keys import UPLOADS_FOLDER, path_of_key, path_of_upload
from tierd.remote.backends.files.file_listing import objects_below, uploads_below
from tierd.remote.backends.files.file_root import (
    DIRECTORY_MODE,
    FILE_MODE,
    anchored,
    make_directories_below,
    open_below,
)
from tierd.remote.backends.files.file_upload import FileUpload, make_directories, remove_upload
from tierd.remote.chunks import iterated
from tierd.remote.object_store import (
    Body,
    ChunkedBody,
    FileBody,
    ObjectInfo,
    ObjectVersion,
    UnfinishedUpload,
    range_beyond,
)
from tierd.tasks import retrieve

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")

_STEP_BYTES = 16 * CHECKSUM_BLOCK_BYTES  # a cancellation takes effect between two steps
_THREADS = 8
_PUBLISH_ATTEMPTS = 5
_LOCK_NAME = "replace.lock"

_PLANTED = frozenset({errno.EINVAL, errno.ELOOP})  # by anchored paths, and for files that are not regular
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class FilesystemObjectStore:
    """An ``ObjectStore`` in the directory ``root``, which is created when it is missing.

    An object is written under a temporary name, synced, and linked to its own name, which fails if the name is taken.
    Temporary files that a crash left are its unfinished uploads.
    """

    def __init__(self, root: Path, *, new_id: Callable[[], UUID] = uuid4, patience_s: float = 10.0) -> None:
        """Prepare to use ``root``; a cancelled call waits at most ``patience_s`` for the disk to end its last step."""
        self._root = root
        self._patience_s = patience_s
        self._uploads = root / UPLOADS_FOLDER
        self._new_id = new_id
        self._root_seen: tuple[int, int] | None = None  # device and inode; others mean another file system
        self._made: set[Path] = set()  # directories that were there when they were last used
        self._one_replaces = threading.Lock()
        self._buffers: list[memoryview] = []
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tierd-store")

    async def put(self, key: str, body: Body) -> None:
        """Create the object unless the key exists; cancelled, it leaves neither object nor temporary file."""
        pace = body.pace if isinstance(body, FileBody) else None
        step = CHECKSUM_BLOCK_BYTES if pace else _STEP_BYTES
        stored = False
        async with self._upload(key, body) as upload:
            if isinstance(body, ChunkedBody):
                await self._append_all(upload, body)
            while not stored:
                if pace:
                    await pace(min(step, upload.remaining_bytes))
                stored = await self._run(self._advance, upload, step)

    @asynccontextmanager
    async def _upload(self, key: str, body: Body) -> AsyncIterator[FileUpload]:
        """Yield an upload of the object; at the end its temporary file goes, also after a cancellation."""
        final = self._root / path_of_key(key)
        upload = FileUpload(self._root, self._uploads, path_of_upload(self._new_id(), key), final, body)
        try:
            yield upload
        finally:
            upload.abandon()
            await self._settled(self._submit(upload.close))

    async def _append_all(self, upload: FileUpload, body: ChunkedBody) -> None:
        async with iterated(body.chunks) as chunks:
            async for chunk in chunks:
                if body.pace is not None:
                    await body.pace(len(chunk))
                await self._run(self._append, upload, chunk)

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give the object other content if it is exactly ``previous``; a lock file keeps other processes waiting."""
        async with self._upload(key, content) as upload:
            await self._run(self._replace, upload, content, previous)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end."""
        return await self._run(self._found, _read, self._root, path_of_key(key), byte_range)

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object, without a checksum, which would take a read of all of it."""
        return await self._run(self._found, _described, self._root, key)

    async def delete(self, key: str) -> None:
        """Remove the object, and directories that are empty then."""
        await self._run(self._delete, self._root / path_of_key(key))

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects whose key begins with ``prefix``, in order of key."""
        return await self._run(self._list_objects, prefix, start_after, limit)

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return temporary files of keys that begin with ``prefix``; ``initiated_ms`` is their last write."""
        return await self._run(self._list_uploads, prefix)

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Remove a temporary file."""
        await self._run(self._abort, self._uploads / path_of_upload(UUID(hex=upload.upload_id), upload.key))

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        """Return the present objects. Snapshots and backups of the file system are unknown here."""
        return [
            ObjectVersion(key=info.key, version_id="", size_bytes=info.size_bytes, is_current=True)
            for info in await self.list_objects(prefix)
        ]

    async def delete_version(self, version: ObjectVersion) -> None:
        """Remove the object, whose present content is its one version."""
        await self.delete(version.key)

    async def check(self) -> None:
        """Raise unless a file can be written below ``root``."""
        await self._run(self._check)

    async def close(self) -> None:
        """Let running steps end in the background."""
        self._threads.shutdown(wait=False)

    # ------------------------------------------------------------ blocking, in threads

    def _found(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that reads an object; the directory of the first object found is this store from then on."""
        identity = self._require_same_root()
        answer = call(*args, **kwargs)
        self._root_seen = self._root_seen or identity
        return answer

    def _advance(self, upload: FileUpload, size_bytes: int) -> bool:
        """Take the upload one step further; return True when the object is there with this content."""
        self._require_same_root()
        with self._buffer() as buffer:
            upload.write(size_bytes, buffer)
            self._root_seen = self._root_seen or self._root_identity()
            if upload.remaining_bytes:
                return False
            self._publish(upload, buffer)
        return True

    def _append(self, upload: FileUpload, chunk: bytes) -> None:
        self._require_same_root()
        upload.append(chunk)

    def _replace(self, upload: FileUpload, content: bytes, previous: bytes) -> None:
        self._require_same_root()
        with anchored(self._root, upload.final) as final:
            final.stat(follow_symlinks=False)  # raises when there is no object to replace, before a file is made
        self._ensure_directory(self._uploads)
        with self._replacing(), self._buffer() as buffer:
            beyond = range_beyond(content, previous)
            present = _read(self._root, upload.final.relative_to(self._root), beyond)
            if present not in {previous, content}:
                raise RemoteConflictError(
                    f"{upload.final} has other content than was expected", remedy="read it again, then decide anew"
                )
            if present == content:
                with anchored(self._root, upload.final) as final:
                    sync_directory(final.parent)  # the process that stored the object may have died before its sync
                return
            upload.write(0, buffer)
            upload.replace()

    @contextmanager
    def _replacing(self) -> Iterator[None]:
        """Exclude other replacements, by this process and by others that use the same directory."""
        with self._one_replaces, contextlib.ExitStack() as opened:
            with anchored(self._root, self._uploads / _LOCK_NAME) as place:
                lock = open_regular(place, os.O_RDWR | os.O_CREAT, FILE_MODE)
            opened.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)  # closing the file releases the lock
            yield

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
                raise conflict(f"{upload.final} exists already, with other content")

    def _require_same_root(self) -> tuple[int, int] | None:
        """Return the identity of the directory; raise when it is not the one that this process began with.

        The mount is gone then, or replaced. Files below an empty mount point fill the wrong disk, and are hidden when
        the mount is back; and an object that is not found there need not be gone.
        """
        seen = self._root_seen  # before the look: another thread may make the directory between the two
        identity = self._root_identity()
        if seen and identity != seen:
            raise RetriableRemoteStorageError(
                f"{self._root} is not the directory that it was",
                remedy="mount the tier again; restart tierd if the directory was replaced on purpose",
            )
        return identity

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
            with anchored(self._root, directory) as place:
                with contextlib.suppress(FileExistsError):
                    place.mkdir(mode=DIRECTORY_MODE)
                # Also when it exists: the process that made it may have died before its sync.
                sync_directory(place.parent)
        self._made.add(directory)

    def _abort(self, path: Path) -> None:
        self._require_same_root()
        remove_upload(self._root, path, self._uploads)

    def _delete(self, path: Path) -> None:
        self._require_same_root()
        absent = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with absent, _absent_if_too_long(), anchored(self._root, path) as place:
            place.unlink()
            sync_directory(place.parent)
        directory = path.parent
        while directory != self._root:
            self._made.discard(directory)
            try:
                with _absent_if_too_long(), anchored(self._root, directory) as place:
                    place.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return  # not empty
            directory = directory.parent

    def _list_objects(self, prefix: str, start_after: str, limit: int | None) -> list[ObjectInfo]:
        self._require_same_root()
        return list(islice(objects_below(self._root, prefix, start_after=start_after), limit))

    def _list_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        self._require_same_root()
        return sorted(
            uploads_below(self._root, self._uploads, prefix), key=lambda upload: (upload.key, upload.upload_id)
        )

    def _check(self) -> None:
        self._require_same_root()
        make_directories(self._root)
        make_directories_below(self._root, self._uploads)
        with anchored(self._root, self._uploads / f"check-{self._new_id().hex}") as probe:
            try:
                os.close(open_regular(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
            finally:
                probe.unlink(missing_ok=True)

    @contextmanager
    def _buffer(self) -> Iterator[memoryview]:
        """Lend a buffer; there are at most as many buffers as threads."""
        try:
            buffer = self._buffers.pop()  # without a check before: another thread could take the last one in between
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
        """Wait for a step whose result is not needed, for a bounded time: a mount without its server may not answer.

        A cancellation that comes meanwhile waits for the step as well.
        """
        try:
            await asyncio.wait({step}, timeout=self._patience_s)
        except asyncio.CancelledError:
            await asyncio.wait({step}, timeout=self._patience_s)
            raise
        if not step.done():
            log.warning("store_step_left_behind", root=str(self._root), waited_s=self._patience_s)
        step.add_done_callback(retrieve)


def _translated(error: OSError, root: Path) -> RemoteStorageError:
    cause = f"{error.filename or root}: {error.strerror or error}"
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return RemoteResourceNotFoundError(f"{cause}: no such object")
    if error.errno in _FULL:
        return RemoteStorageFullError(
            f"the tier's disk is full: {cause}", remedy=f"free or add space below {root}; tierd goes on by itself then"
        )
    if error.errno in _REFUSED:
        return RemoteAccessError(
            f"the tier's directory cannot be used: {cause}",
            remedy=f"mount it writable and let user id {os.geteuid()} read and write below {root}",
        )
    if error.errno in _PLANTED:
        return RemoteStorageError(
            f"{cause}; tierd makes no such thing", remedy="find out who put it there, and remove it"
        )
    if error.errno == errno.ENAMETOOLONG:
        return RemoteStorageError(f"a key is too long for this file system: {cause}", remedy="use a shorter key_prefix")
    return RetriableRemoteStorageError(f"the tier's disk fails: {cause}", remedy=f"check the disk and mount of {root}")


@contextmanager
def _absent_if_too_long() -> Iterator[None]:
    """Translate the error for a name too long for the file system into a missing file: no such object can exist."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), error.filename) from error
        raise


def _read(root: Path, path: PurePath, byte_range: ByteRange | None) -> bytes:
    with _absent_if_too_long(), open_below(root, path) as file:
        size = os.fstat(file.fileno()).st_size
        wanted = (ByteRange.of_size(0, size) if size else None) if byte_range is None else byte_range.clipped(size)
        return os.pread(file.fileno(), wanted.size, wanted.start) if wanted else b""


def _described(root: Path, key: str) -> ObjectInfo:
    path = root / path_of_key(key)
    with _absent_if_too_long(), anchored(root, path) as place:
        status = place.stat(follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return ObjectInfo(key, status.st_size, None, status.st_mtime_ns // 1_000_000)
