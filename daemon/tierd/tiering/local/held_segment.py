"""HeldSegment: the files of one rolled segment, reachable although the broker deletes their names."""

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Self

from tierd.errors import SegmentChangedError
from tierd.model import Lineage

DELETED_SUFFIX = ".deleted"
LINEAGE_FILE = "leader-epoch-checkpoint"


class HoldKind(Enum):
    """Kind of a hold."""

    LINK = "link"
    DESCRIPTOR = "descriptor"
    NONE = "none"


class SegmentFile(Enum):
    """Files that share a base offset, and the producer snapshot of the roll."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"

    def name_for(self, *, base_offset: int, next_base_offset: int) -> str:
        """Return the file's name in a partition directory. A snapshot carries the offset at which it was taken."""
        offset = next_base_offset if self is SegmentFile.PRODUCER_SNAPSHOT else base_offset
        return f"{offset:020d}.{self.value}"


class FileState(NamedTuple):
    """State of a file that changes with its content, without a read of the content."""

    inode: int
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the state of the file at ``path``, as the file system has it.

        Raises:
            SegmentChangedError: the file is not there.
        """
        try:
            status = os.stat(path)  # noqa: PTH116 - one call per segment of thousands; Path.stat only adds to it
        except FileNotFoundError as error:
            raise SegmentChangedError(
                f"{path}: deleted while it was queued", remedy="the partition is scanned again"
            ) from error
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSegment:
    """Rolled segment that is queued for copy. Thousands may exist: paths are made when they are asked for.

    Attributes:
        next_base_offset: base of the successor, exclusive end.
        root: directory that the names are in; for descriptors the one they were opened in. For links it is their stem.
        log_file: the log as it was when it was held; a rolled log never changes.
        lineage: the broker's epochs at that time, for it forgets those of what it deletes.
        renamed: files whose names in ``root`` end in ``.deleted``.
        descriptors: open files by kind; empty unless held by descriptor.
        present: the files that exist.
    """

    base_offset: int
    next_base_offset: int
    kind: HoldKind
    root: str
    log_file: FileState
    lineage: Lineage
    present: frozenset[SegmentFile]
    renamed: frozenset[SegmentFile] = frozenset()
    descriptors: tuple[tuple[SegmentFile, int], ...] = ()

    @property
    def end_offset(self) -> int:
        """Return the last offset, inclusive."""
        return self.next_base_offset - 1

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the log file."""
        return self.log_file.size_bytes

    @property
    def modified_ms(self) -> int:
        """Return the wall clock of the last append."""
        return self.log_file.mtime_ns // 1_000_000

    @property
    def log(self) -> Path:
        """Return the path to read the records from."""
        path = self.path(SegmentFile.LOG)
        assert path is not None, "a segment without a log is never held"
        return path

    def path(self, file: SegmentFile) -> Path | None:
        """Return the path to read ``file`` from; None when the segment had none."""
        for kind, descriptor in self.descriptors:
            if kind is file:
                # Opening this path makes a new open file of the same inode, even when no name is left.
                return Path(f"/proc/self/fd/{descriptor}")
        if file not in self.present:
            return None
        if self.kind is HoldKind.LINK:
            return Path(f"{self.root}.{file.value}")
        name = file.name_for(base_offset=self.base_offset, next_base_offset=self.next_base_offset)
        return Path(self.root, name + DELETED_SUFFIX if file in self.renamed else name)
