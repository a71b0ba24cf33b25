"""The ledger of deletions: why, when and by whom remote segments were deleted, as JSON lines in files of bounded size.

::

    <state dir>/deletions.jsonl      the newest lines; deletions.jsonl.1 is older, and so on
    {"time_ms":1700000000000,"step":"tombstoned","partition":"orders-0","topic_id":"…","segment_id":"…","start_offset":0,
     "end_offset":99,"size_bytes":4096,"reason":"retention_time","detail":"…","broker_id":1}

A line is durable before its step begins: a deletion that cannot be recorded is not done. So a line may be of a step
that did not happen; the next attempt writes another line.
"""

import asyncio
import errno
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from pydantic import TypeAdapter, ValidationError

from tierd.errors import StateDirError
from tierd.files import open_regular
from tierd.model import RemoteLogSegmentMetadata, TopicPartition, uuid_to_text

LEDGER_NAME: Final = "deletions.jsonl"
_NUMBERED: Final = re.compile(rf"{re.escape(LEDGER_NAME)}\.[0-9]{{1,9}}")
_MAX_FILE_BYTES: Final = 16 << 20  # some 50,000 lines
_OLD_FILES: Final = 4


class DeleteReason(StrEnum):
    """Reason why a remote segment goes; the words of rows, tombstones and the ledger."""

    RETENTION_TIME = "retention_time"
    RETENTION_BYTES = "retention_bytes"
    START_OFFSET = "start_offset"
    UNREFERENCED_EPOCH = "unreferenced_epoch"
    DIVERGED = "diverged"
    COVERED = "covered"
    REPLACED = "replaced"
    DANGLING = "dangling"
    DELETE_RETRY = "delete_retry"
    TOPIC_DELETED = "topic_deleted"
    DAMAGED = "damaged"
    ORPHAN = "orphan"


class LedgerStep(StrEnum):
    """Step of a deletion that is about to happen, or has failed."""

    TOMBSTONED = "tombstoned"
    DELETED = "deleted"
    RETAINED = "retained"
    UNDELETED = "undeleted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """Line of the ledger. Ids are in Kafka's 22-character form, offsets inclusive, ``size_bytes`` is the log's."""

    time_ms: int
    step: str
    partition: str
    topic_id: str
    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    reason: str
    detail: str
    broker_id: int

    @classmethod
    def of(
        cls,
        metadata: RemoteLogSegmentMetadata,
        step: LedgerStep,
        *,
        reason: str,
        detail: str,
        time_ms: int,
        broker_id: int,
    ) -> "LedgerEntry":
        """Return the line for a step in the deletion of ``metadata``."""
        partition = metadata.segment.topic_id_partition
        return cls(
            time_ms=time_ms,
            step=step.value,
            partition=str(partition),
            topic_id=uuid_to_text(partition.topic_id),
            segment_id=uuid_to_text(metadata.segment.id),
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            size_bytes=metadata.size_bytes,
            reason=reason,
            detail=detail,
            broker_id=broker_id,
        )


_LINES: Final = TypeAdapter(LedgerEntry)
_MAX_LINE_BYTES: Final = 1 << 20  # what is longer is no entry, and is read in pieces that are none


class Ledger(Protocol):
    """Record of deletions."""

    async def record(self, entry: LedgerEntry) -> None:
        """Append the line and return when it is durable; after a cancellation the line may be there or not.

        Raises:
            StateDirError: the line cannot be written; its step must not be done.
        """


class NoLedger:
    """Ledger that notes nothing, for stores that only a test sees."""

    async def record(self, entry: LedgerEntry) -> None:
        """Do nothing."""


class DeletionLedger:
    """Ledger of one state directory, whose lock the caller holds. Lines that come together share one fsync."""

    def __init__(self, state_dir: Path, *, max_file_bytes: int = _MAX_FILE_BYTES, old_files: int = _OLD_FILES) -> None:
        """Write nothing yet; at most ``old_files`` + 1 files of about ``max_file_bytes`` each are kept."""
        self._path = state_dir / LEDGER_NAME
        self._max_file_bytes = max_file_bytes
        self._old_files = old_files
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def record(self, entry: LedgerEntry) -> None:
        """Append the line durably."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((json.dumps(asdict(entry), separators=(",", ":")) + "\n", done))
        if self._writing is None:
            # Owned by the callers that wait for a line; it ends with the last of them, and writes what was asked for.
            self._writing = asyncio.create_task(self._write_waiting(), name="ledger of deletions")
        await done

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                problem: StateDirError | None = None
                try:
                    await asyncio.to_thread(self._append, "".join(line for line, _ in group))
                except OSError as error:
                    problem = StateDirError(
                        f"{self._path} cannot be written: {error.strerror or error}; so nothing is deleted",
                        remedy="free space or grant this user write permission there; deletions then go on",
                    )
                _settle([done for _, done in group], problem)
        finally:
            self._writing = None

    def _append(self, lines: str) -> None:
        """Append lines durably. Blocking. A line that a crash tore is ended first, so that it spoils no other."""
        content = lines.encode()
        descriptor = open_regular(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            written = os.write(descriptor, b"\n" + content if torn else content)
            if written != len(content) + torn:
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if size == 0:
            self._sync_directory()
        if size + len(content) >= self._max_file_bytes:
            self._rotate()

    def _rotate(self) -> None:
        for number in range(self._old_files, 0, -1):
            older = self._path if number == 1 else _numbered(self._path, number - 1)
            if older.exists():
                older.replace(_numbered(self._path, number))
        self._sync_directory()

    def _sync_directory(self) -> None:
        descriptor = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_ledger(
    state_dir: Path, partition: TopicPartition | None = None, *, since_ms: int = 0
) -> Iterator[LedgerEntry]:
    """Yield the lines, oldest first, of one partition or of all; a line that a crash tore is left out. Blocking.

    Raises:
        StateDirError: a file cannot be read.
    """
    for file in _files(state_dir):
        try:
            with file.open("rb") as lines:
                yield from (
                    entry
                    for entry in map(_parsed, iter(partial(lines.readline, _MAX_LINE_BYTES), b""))
                    if entry is not None
                    and entry.time_ms >= since_ms
                    and (partition is None or entry.partition == str(partition))
                )
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unreadable(file, error) from error


def read_newest(
    state_dir: Path, partition: TopicPartition | None = None, *, limit: int, max_bytes: int = 4 << 20
) -> list[LedgerEntry]:
    """Return the newest lines of one partition or of all, newest first, from the end of the newest files. Blocking.

    Args:
        state_dir: the state directory.
        partition: None for all.
        limit: of lines.
        max_bytes: read at most, from the end; older lines are not looked for.

    Raises:
        StateDirError: a file cannot be read.
    """
    found: list[LedgerEntry] = []
    for file in reversed(_files(state_dir)):
        try:
            with file.open("rb") as lines:
                size = lines.seek(0, os.SEEK_END)
                lines.seek(start := max(0, size - max_bytes))
                content = lines.read(max_bytes)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unreadable(file, error) from error
        max_bytes -= len(content)
        whole = content.splitlines()[1 if start else 0 :]  # the first one may be the end of a line
        entries = (entry for line in reversed(whole) if (entry := _parsed(line)) is not None)
        for entry in entries:
            if partition is None or entry.partition == str(partition):
                found.append(entry)
                if len(found) == limit:
                    return found
        if max_bytes <= 0:
            break
    return found


def _files(state_dir: Path) -> list[Path]:
    """Return the files that there may be, oldest first."""
    path = state_dir / LEDGER_NAME
    numbered = [file for file in path.parent.glob(f"{LEDGER_NAME}.*") if _NUMBERED.fullmatch(file.name)]
    return [*sorted(numbered, key=lambda file: -int(file.suffix[1:])), path]


def _unreadable(file: Path, error: OSError) -> StateDirError:
    return StateDirError(f"{file} cannot be read: {error}", remedy="check state_dir and its disk")


def _parsed(line: bytes) -> LedgerEntry | None:
    try:
        return _LINES.validate_json(line)  # fields of a later tierd are left out
    except ValidationError:
        return None


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _settle(waiters: "Sequence[asyncio.Future[None]]", problem: StateDirError | None) -> None:
    for waiter in waiters:
        if waiter.done():  # the caller was cancelled
            continue
        if problem is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(problem)
