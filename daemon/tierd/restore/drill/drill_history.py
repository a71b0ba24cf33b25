"""DrillHistory: keeps what drills found out, as JSON lines in the state directory.

::

    <state dir>/drills.jsonl    one line a drilled partition, the newest last

Thinning keeps the newest lines, and of each partition that the tier still has the last drill and the last proof.
"""

import errno
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tierd.errors import StateDirError
from tierd.files import open_regular, replace_privately, sync_directory
from tierd.model import TopicIdPartition
from tierd.restore.drill.drilled_partition import DrilledPartition, DrillProofs

HISTORY_NAME: Final = "drills.jsonl"
_LINES_KEPT: Final = 1000
_MAX_BYTES: Final = 256 << 20
_LINE: Final = TypeAdapter(DrilledPartition)

BrokerVersion = tuple[int, int, int]
"""Inode, size and modification time in ns: another one after every change of the file."""


class DrillHistory:
    """Drills of one state directory. Blocking. Only the holder of the scratch directory writes."""

    def __init__(self, state_dir: Path, *, lines_kept: int = _LINES_KEPT) -> None:
        """Read and write nothing yet; ``lines_kept`` lines stay whatever they say."""
        self._path = state_dir / HISTORY_NAME
        self._lines_kept = lines_kept

    def version(self) -> BrokerVersion | None:
        """Return a value that changes with the file; None while there is none.

        Raises:
            StateDirError: the state directory cannot be read.
        """
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error
        return status.st_ino, status.st_size, status.st_mtime_ns

    def read(self) -> list[DrilledPartition]:
        """Return the drills, the oldest first; a line that cannot be understood is left out.

        Raises:
            StateDirError: the file cannot be read.
        """
        try:
            with os.fdopen(open_regular(self._path), "rb") as file:
                content = file.read(_MAX_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error) from error
        return [drill for line in content.splitlines() if (drill := _parsed(line)) is not None]

    def proofs(self) -> DrillProofs:
        """Return the last drill and the last proof of each partition, with the error of ``read``."""
        return DrillProofs.of(self.read())

    def append(self, drill: DrilledPartition) -> None:
        """Add a line, durably. A line that a crash tore is ended first, so that it spoils no other.

        Raises:
            StateDirError: the file cannot be written.
        """
        line = _LINE.dump_json(drill) + b"\n"
        try:
            fd = open_regular(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                size = os.fstat(fd).st_size
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                written = os.write(fd, b"\n" + line if torn else line)
                if written != len(line) + torn:
                    os.ftruncate(fd, size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(fd)
            finally:
                os.close(fd)
            if size == 0:
                sync_directory(self._path.parent)
        except OSError as error:
            raise self._unusable(error) from error

    def thin(self, known: Collection[TopicIdPartition]) -> None:
        """Drop old lines if there are many; a crash leaves the former file or the new one.

        Args:
            known: the partitions that the tier has.

        Raises:
            StateDirError: the file cannot be read or written.
        """
        drills = self.read()
        kept = kept_lines(drills, known, lines_kept=self._lines_kept)
        if len(kept) == len(drills):
            return
        try:
            replace_privately(self._path, b"".join(_LINE.dump_json(drill) + b"\n" for drill in kept))
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> StateDirError:
        return StateDirError(
            f"{self._path}: {error.strerror}", remedy="free disk space, or mend the disk or its permissions"
        )


def kept_lines(
    drills: Sequence[DrilledPartition], known: Collection[TopicIdPartition], *, lines_kept: int
) -> list[DrilledPartition]:
    """Return the drills that stay: the newest ``lines_kept``, and the last drill and proof of known partitions."""
    proofs = DrillProofs.of(drills)
    needed = {
        id(each) for found in (proofs.last, proofs.proofs) for partition, each in found.items() if partition in known
    }
    newest = len(drills) - lines_kept
    return [each for number, each in enumerate(drills) if number >= newest or id(each) in needed]


def _parsed(line: bytes) -> DrilledPartition | None:
    try:
        drill = _LINE.validate_json(line)  # fields of a later tierd are left out
        _ = drill.topic_id_partition
    except (ValidationError, ValueError):  # torn by a crash, or of a later tierd
        return None
    return drill
