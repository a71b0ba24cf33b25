"""SqliteKeyValueStore: the embedded metadata store of a single host."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Self, TypeVar, cast

from tierd.errors import BackendUnavailableError, TierError
from tierd.metadata.kv.key_value_store import Batch, KeyValueStore
from tierd.metadata.kv.sqlite_file import SqliteFile

_GROUP_LIMIT: Final = 512  # calls served by one job of the worker, which bounds the transaction that a call waits for
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class _ReadCall(Generic[_T]):
    read: Callable[[SqliteFile], _T]
    answer: "asyncio.Future[_T]"


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    batch: Batch
    answer: "asyncio.Future[None]"


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: object = None
    error: TierError | None = None


class SqliteKeyValueStore(KeyValueStore):
    """Store in one file, with one worker thread, used from one event loop.

    Batches that wait while the worker is busy share its next transaction, and so one fsync; each is applied wholly or
    not at all, whatever its neighbours meet. A cancelled call leaves the queue; one that the worker has taken may still
    be applied.
    """

    def __init__(self, file: SqliteFile, worker: ThreadPoolExecutor) -> None:
        self._file = file
        self._worker = worker
        self._waiting: list[_ReadCall[object] | _Write] = []
        self._job: asyncio.Future[list[_Outcome]] | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, read_only: bool = False, timeout_s: float = 5.0) -> Self:
        """Open the file at ``path``; a daemon's file is made when there is none.

        Args:
            path: of the SQLite file.
            read_only: never write, as beside a running daemon.
            timeout_s: how long to wait for a lock that another process holds.

        Raises:
            MetadataError: the file is damaged, foreign or of another version; or missing, with ``read_only``.
            BackendUnavailableError: it cannot be opened, or stays locked.
        """
        opener = SqliteFile.open_read_only if read_only else SqliteFile.open
        worker = ThreadPoolExecutor(1, thread_name_prefix="metadata-sqlite")
        opening = worker.submit(opener, path, timeout_s=timeout_s)
        try:
            return cls(await asyncio.wrap_future(opening), worker)
        except BaseException:
            opening.add_done_callback(_close_unwanted)  # cancelled while the thread opens the file
            worker.shutdown(wait=False)
            raise

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist."""
        wanted = tuple(keys)
        return await self._read(lambda file: file.get_many(wanted))

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return every pair below ``prefix``, in order."""
        return await self._read(lambda file: file.scan(prefix))

    async def apply(self, batch: Batch) -> None:
        """Apply a batch durably, all of it or nothing."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._enqueue(_Write(batch, answer))
        await answer

    async def close(self) -> None:
        """Let running calls end and close the file; a cancellation leaves the closing to the worker."""
        if self._closed:
            return
        self._closed = True
        try:
            while self._job is not None:
                await asyncio.wait({self._job})
        finally:
            closing = self._worker.submit(self._file.close)
            self._worker.shutdown(wait=False)
        await asyncio.wrap_future(closing)

    async def _read(self, read: Callable[[SqliteFile], _T]) -> _T:
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._enqueue(cast("_ReadCall[object]", _ReadCall(read, answer)))
        return await answer

    def _enqueue(self, call: "_ReadCall[object] | _Write") -> None:
        if self._closed:
            raise BackendUnavailableError(f"{self._file.path}: the metadata store is closed")
        self._waiting.append(call)
        call.answer.add_done_callback(lambda answer: self._withdraw(call) if answer.cancelled() else None)
        if self._job is None:
            self._begin_job()

    def _withdraw(self, call: "_ReadCall[object] | _Write") -> None:
        """Remove a cancelled call: while a disk hangs and callers time out, abandoned calls must not pile up."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(call)

    def _begin_job(self) -> None:
        calls, self._waiting = self._waiting[:_GROUP_LIMIT], self._waiting[_GROUP_LIMIT:]
        self._job = asyncio.get_running_loop().run_in_executor(self._worker, _serve, self._file, calls)
        self._job.add_done_callback(lambda job: self._end_job(job, calls))

    def _end_job(self, job: "asyncio.Future[list[_Outcome]]", calls: "list[_ReadCall[object] | _Write]") -> None:
        self._job = None
        if self._waiting:
            self._begin_job()
        bug = job.exception()
        if bug is not None:  # every caller hears of it, or they would wait for ever
            for call in calls:
                if not call.answer.done():
                    call.answer.set_exception(bug)
            return
        for call, outcome in zip(calls, job.result(), strict=True):
            if call.answer.done():  # the caller was cancelled meanwhile
                continue
            if outcome.error is not None:
                call.answer.set_exception(outcome.error)
            elif isinstance(call, _ReadCall):
                call.answer.set_result(outcome.value)
            else:
                call.answer.set_result(None)


def _serve(file: SqliteFile, calls: "list[_ReadCall[object] | _Write]") -> list[_Outcome]:
    """Serve the calls, in the worker: every read, then every write in one transaction. All calls are concurrent."""
    outcomes = {id(call): _outcome_of(file, call) for call in calls if isinstance(call, _ReadCall)}
    writes = [call for call in calls if isinstance(call, _Write)]
    if writes:
        errors = file.apply_all([write.batch for write in writes])
        outcomes.update({id(write): _Outcome(error=error) for write, error in zip(writes, errors, strict=True)})
    return [outcomes[id(call)] for call in calls]


def _outcome_of(file: SqliteFile, call: "_ReadCall[object]") -> _Outcome:
    try:
        return _Outcome(value=call.read(file))
    except TierError as error:
        return _Outcome(error=error)


def _close_unwanted(opening: "Future[SqliteFile]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
