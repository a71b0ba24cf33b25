"""Repair and truncation of one partition directory that no process uses: survey, plan, steps (``tierd repair``).

A crash between two steps loses nothing: bytes are in a side file, durably, before they are removed from their place. A
plan that was interrupted is not resumed: the next survey leads to a new plan.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tierd.errors import OffsetOutOfRangeError, SegmentChangedError, UnknownPartitionError
from tierd.log.dirs.log_dir import DirLock
from tierd.log.files.checkpoints import load_offset_checkpoint, write_offset_checkpoint
from tierd.log.files.directory import parse_directory_name
from tierd.log.files.disk import Disk, DiskFile, OsDisk, replace_file, unlink_if_there
from tierd.log.files.log_dir_lock import LogDirLock, require_unlocked
from tierd.log.files.offline import OfflineFlag
from tierd.log.records.log_config import LogConfig
from tierd.log.repair.log_repair_plan import (
    CutTail,
    LogRepairStep,
    LowerCheckpoint,
    MoveAside,
    RepairPlan,
    WriteAnew,
    plan_repair,
)
from tierd.log.repair.partition_survey import OnSurveyProgress, survey_partition
from tierd.log.repair.side_files import new_stamp, side_file_name
from tierd.model import TopicPartition

T = TypeVar("T")

_DEFAULT_CONFIG = LogConfig()
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LogRepairResult:
    """A plan, and the side files of the steps that were carried out; none as long as it is only a plan."""

    directory: Path
    plan: RepairPlan
    kept: tuple[str | None, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Return True if no damage is left once the plan is carried out."""
        return not self.plan.remaining


def repair_partition(
    directory: Path,
    *,
    now_ms: int,
    config: LogConfig = _DEFAULT_CONFIG,
    cut_damaged: bool = False,
    dry_run: bool = False,
    disk: Disk | None = None,
    acquire_lock: Callable[[Path], DirLock] = LogDirLock.acquire,
    progress: OnSurveyProgress | None = None,
) -> LogRepairResult:
    """Repair a partition directory as far as that is possible. Blocking; the log dir is locked meanwhile.

    Args:
        directory: of the partition; its parent is the log dir.
        now_ms: wall clock, for the names of side files.
        config: the topic's settings, as far as indexes depend on them.
        cut_damaged: let the log end before the first damage in its middle.
        dry_run: return the plan only; nothing is written, not even the lock file.
        disk: the disk of the directory.
        acquire_lock: keeps other processes out, or raises.
        progress: receives the progress of the survey.

    Raises:
        LogDirLockedError: a broker or tierd uses the log dir.
        PartitionNameError: the name of the directory is not the name of a partition.
        SegmentChangedError: another process changes the files meanwhile.
        LogDirOfflineError: the disk failed; the steps done until then stay done, and nothing is lost.
    """
    work = _Work(disk or OsDisk(), directory, now_ms, config, progress)
    return work.locked(lambda: work.repair(cut_damaged=cut_damaged, dry_run=dry_run), acquire_lock, dry_run=dry_run)


def truncate_partition(
    directory: Path,
    offset: int,
    *,
    now_ms: int,
    confirm: Callable[[RepairPlan], bool],
    config: LogConfig = _DEFAULT_CONFIG,
    disk: Disk | None = None,
    acquire_lock: Callable[[Path], DirLock] = LogDirLock.acquire,
    progress: OnSurveyProgress | None = None,
) -> LogRepairResult | None:
    """Cut the log before the batch that holds ``offset``; side files keep the bytes that are cut. Blocking.

    Args:
        directory: of the partition.
        offset: the first offset to remove; its batch is removed as a whole.
        now_ms: wall clock, for the names of side files.
        confirm: called with the plan; nothing is cut unless it returns True.
        config: the topic's settings, as far as indexes depend on them.
        disk: the disk of the directory.
        acquire_lock: keeps other processes out, or raises.
        progress: receives the progress of the survey.

    Returns:
        The result; None when ``confirm`` refused, and nothing was changed.

    Raises:
        OffsetOutOfRangeError: ``offset`` is below the first segment.
        UnknownPartitionError: the directory holds no segment.
        LogDirLockedError, PartitionNameError, SegmentChangedError, LogDirOfflineError: as ``repair_partition``.
    """
    work = _Work(disk or OsDisk(), directory, now_ms, config, progress)
    return work.locked(lambda: work.truncate(offset, confirm), acquire_lock, dry_run=False)


@dataclass(frozen=True, slots=True)
class _Work:
    disk: Disk
    directory: Path
    now_ms: int
    config: LogConfig
    progress: OnSurveyProgress | None

    def locked(self, work: Callable[[], T], acquire_lock: Callable[[Path], DirLock], *, dry_run: bool) -> T:
        with OfflineFlag(self.directory.parent).storage():
            if dry_run:
                require_unlocked(self.directory.parent)
                return work()
            lock = acquire_lock(self.directory.parent)
            try:
                return work()
            finally:
                lock.release()

    def repair(self, *, cut_damaged: bool, dry_run: bool) -> LogRepairResult:
        facts = survey_partition(self.disk, self.directory, config=self.config, progress=self.progress)
        plan = plan_repair(facts, cut_damaged=cut_damaged)
        return LogRepairResult(self.directory, plan) if dry_run else self.carry_out(plan)

    def truncate(self, offset: int, confirm: Callable[[RepairPlan], bool]) -> LogRepairResult | None:
        facts = survey_partition(self.disk, self.directory, config=self.config, stop_at=offset, progress=self.progress)
        if not facts.segments:
            raise UnknownPartitionError(f"{self.directory}: no segment is there", remedy="name a partition directory")
        first = facts.segments[0].base_offset
        if offset < first:
            raise OffsetOutOfRangeError(
                f"{facts.partition}: offset {offset} is below the first segment, {first}",
                remedy=f"truncate to {first} to drop every record",
            )
        plan = plan_repair(facts)
        return self.carry_out(plan) if confirm(plan) else None

    def carry_out(self, plan: RepairPlan) -> LogRepairResult:
        stamp = new_stamp(self.now_ms, self.disk.list_names(self.directory))
        actor = RepairActor(self.disk, self.directory, parse_directory_name(self.directory.name)[0], stamp=stamp)
        return LogRepairResult(self.directory, plan, tuple(actor.do(step) for step in plan.steps))


class RepairActor:
    """Actor for the steps of one plan. Every call blocks and raises ``OSError``; the steps before stay done."""

    def __init__(self, disk: Disk, directory: Path, partition: TopicPartition, *, stamp: str) -> None:
        """Prepare to work in ``directory``; no other run has the time stamp ``stamp``."""
        self._disk = disk
        self._directory = directory
        self._partition = partition
        self._stamp = stamp

    def do(self, step: LogRepairStep) -> str | None:
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
