"""RepairActor: carries out a plan of repair step by step; a crash between two steps loses nothing.

Bytes are in a side file, durably, before they are removed from their place. A plan that was interrupted is not resumed:
the next survey leads to a new plan.
"""

from pathlib import Path

from tierd.errors import SegmentChangedError
from tierd.log.files.checkpoints import load_offset_checkpoint, write_offset_checkpoint
from tierd.log.files.disk import Disk, DiskFile, replace_file, unlink_if_there
from tierd.log.repair.log_repair_plan import CutTail, LowerCheckpoint, MoveAside, Step, WriteAnew
from tierd.log.repair.side_files import side_file_name
from tierd.model import TopicPartition

_PIECE_BYTES = 1 << 20


class RepairActor:
    """Actor for the steps of one plan. Every call blocks and raises ``OSError``; the steps before stay done."""

    def __init__(self, disk: Disk, directory: Path, partition: TopicPartition, *, stamp: str) -> None:
        """Prepare to work in ``directory``; no other run has the time stamp ``stamp``."""
        self._disk = disk
        self._directory = directory
        self._partition = partition
        self._stamp = stamp

    def do(self, step: Step) -> str | None:
        """Carry out one step, durably; return the name of its side file, if it made one."""
        match step:
            case CutTail():
                return self._cut(step)
            case MoveAside(name):
                return self._move(name)
            case WriteAnew(name, content, _, exists):
                kept = self._copy(name) if exists else None  # a copy, for the name must never be without a file
                replace_file(self._disk, self._directory / name, content)
                return kept
            case LowerCheckpoint(name):
                path = self._directory.parent / name
                offsets = load_offset_checkpoint(self._disk, path)
                write_offset_checkpoint(self._disk, path, offsets | {self._partition: step.offset})
                return None

    def _move(self, name: str) -> str:
        kept = side_file_name(self._stamp, name)
        self._disk.rename(self._directory / name, self._directory / kept)
        self._disk.sync_directory(self._directory)
        return kept

    def _cut(self, step: CutTail) -> str | None:
        kept = self._copy(step.name, step.position) if step.size_bytes else None
        file = self._disk.open(self._directory / step.name)
        try:
            file.truncate(step.position)
            file.sync()
        finally:
            file.close()
        return kept

    def _copy(self, name: str, position: int | None = None) -> str:
        """Copy a file, or its bytes from ``position`` on, to its side file, which gets its name once it is whole."""
        kept = side_file_name(self._stamp, name, position)
        temporary = self._directory / (kept + ".tmp")
        source = self._disk.open(self._directory / name, write=False)
        try:
            target = self._disk.open(temporary, create=True)
            try:
                target.truncate(0)
                _copy_bytes(source, target, position or 0)
                target.sync()
            except (OSError, SegmentChangedError):  # a disk that is full must not stay so because of us
                unlink_if_there(self._disk, temporary)
                raise
            finally:
                target.close()
        finally:
            source.close()
        self._disk.rename(temporary, self._directory / kept)
        self._disk.sync_directory(self._directory)
        return kept


def _copy_bytes(source: DiskFile, target: DiskFile, position: int) -> None:
    at = position
    while piece := source.read(at, _PIECE_BYTES):
        target.write(at - position, [piece])
        at += len(piece)
    if at < source.size_bytes:
        raise source.changed()
