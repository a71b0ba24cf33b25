"""Reads of a broker's log in threads: the work of one log dir, and reads by offset for standbys that fetch."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from tierd.errors import CorruptRecordError, LogDirOfflineError, SegmentChangedError
from tierd.log import (
    KnownPositions,
    PartitionDirectory,
    PartitionScan,
    broker_file,
    find_slice,
    identify_directory,
    open_source,
    scan_partition,
)
from tierd.replication.tail.whole_batches import whole_batches

T = TypeVar("T")

_READ_TIMEOUT_S: Final = 30.0
_SCANS: Final = 128


class LogDirThreads:
    """The threads for one log dir. A disk that hangs holds up the reads of its own log dir only.

    Half of the threads look for new batches; the others read for standbys.
    """

    def __init__(self, name: str, *, readers: int, timeout_s: float = _READ_TIMEOUT_S) -> None:
        self.name = name
        self._executor = ThreadPoolExecutor(max_workers=2 * readers, thread_name_prefix="tail")
        self._reads = asyncio.Semaphore(readers)
        self._timeout_s = timeout_s

    def begin(self, work: Callable[[], T]) -> "Future[T]":
        """Begin ``work`` in a thread; the caller bounds the number of such works."""
        return self._executor.submit(work)

    async def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, as soon as one of the threads for reads is free.

        Raises:
            LogDirOfflineError: the work takes too long; its thread goes on.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._reads.acquire()
                future = self.begin(work)
                # Not before the thread is free: a disk that hangs must not fill the executor's queue.
                loop = asyncio.get_running_loop()
                future.add_done_callback(lambda _: _call_on(loop, self._reads.release))
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise LogDirOfflineError(
                f"{self.name}: a read took more than {self._timeout_s:g} s", remedy="check the disk and the mount"
            ) from error

    def close(self) -> None:
        """Take no more work."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _call_on(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop was closed while the disk hung
        return


class _ScannedDirectory(NamedTuple):
    scan: PartitionScan
    known: KnownPositions


class TailScans:
    """The scans of the logs that are read lately. Blocking, for any thread."""

    def __init__(self) -> None:
        self._scans: OrderedDict[PartitionDirectory, _ScannedDirectory] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, directory: PartitionDirectory, offset: int, *, end_offset: int, max_bytes: int) -> bytes:
        """Return whole and sound batches below ``end_offset`` from the one on that holds ``offset`` or follows it.

        Raises:
            CorruptRecordError: the first batch is damaged.
            SegmentChangedError: the files change again and again.
            LogDirOfflineError: a file cannot be read.
        """
        try:
            return _read(self._scanned(directory), offset, end_offset=end_offset, max_bytes=max_bytes)
        except SegmentChangedError:
            self._forget(directory)
            return _read(self._scanned(directory), offset, end_offset=end_offset, max_bytes=max_bytes)

    def _scanned(self, directory: PartitionDirectory) -> _ScannedDirectory:
        with self._lock:
            found = self._scans.get(directory)
        if found is not None:
            with broker_file(directory.path):
                status = directory.path.stat()
            if (status.st_ino, status.st_mtime_ns) == (directory.inode, found.scan.mtime_ns):
                return found
        if identify_directory(directory.path) != directory:
            raise SegmentChangedError(f"{directory.path}: another directory has taken its name")
        scan = scan_partition(directory)
        scanned = _ScannedDirectory(scan, found.known if found is not None else KnownPositions())
        with self._lock:
            self._scans[directory] = scanned
            self._scans.move_to_end(directory)
            if len(self._scans) > _SCANS:
                self._scans.popitem(last=False)
        return scanned

    def _forget(self, directory: PartitionDirectory) -> None:
        with self._lock:
            self._scans.pop(directory, None)


def _read(scanned: _ScannedDirectory, offset: int, *, end_offset: int, max_bytes: int) -> bytes:
    found = find_slice(
        scanned.scan, offset, end_offset=end_offset, max_bytes=max_bytes, at_least_one=True, known=scanned.known
    )
    if found is None:
        return b""
    with open_source(found.path) as source:
        if source.inode != found.inode:
            raise source.changed()
        data = source.read(found.position, found.size_bytes)
    batches = whole_batches(data, next_offset=found.base_offset, limit_offset=end_offset)
    if not batches.size_bytes:
        raise CorruptRecordError(str(found.path), found.position, "no sound batch")
    return data[: batches.size_bytes]
