"""HeldLogDir: the target of a restore, checked, and locked against a broker (changelog-restore 4.2, step 1)."""

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tierd.errors import PartitionNameError, RefusedError
from tierd.files import make_private_directory, nearest_existing
from tierd.log import (
    CLEANER_OFFSET_CHECKPOINT,
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    LogDirLock,
    list_log_dir,
    parse_directory_name,
    read_meta_properties,
    read_offset_checkpoint,
    require_unlocked,
)
from tierd.restore.plan.partition_plan import PartitionPlan, RestoreMode
from tierd.tasks import in_thread

CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
PARTS: Final = "parts"  # within the stage of a partition: what was fetched

_META_PROPERTIES = "meta.properties"
_SHOWN = 3
_HEADROOM = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirTarget:
    """Target of a restore.

    Attributes:
        log_dir: of a stopped broker, or a directory that no broker has.
        stage: directory for what is not finished, on the same file system, outside of every log dir; made if missing.
        cluster_id: of the cluster that the broker belongs to; its ``meta.properties`` must agree. None: any cluster.
        node_id: of the broker; its ``meta.properties`` must agree. None: any.
        other_log_dirs: the other log dirs of the same broker. None of them may have a restored partition.
    """

    log_dir: Path
    stage: Path
    cluster_id: str | None
    node_id: int | None = None
    other_log_dirs: tuple[Path, ...] = ()


class HeldLogDir:
    """Target that passed its checks, with the broker's lock held.

    Attributes:
        target: the log dir and its stage, as absolute paths.
        owner: user and group id of the log dir, which restored files get.
        changing: held while the names and the checkpoints in the log dir change: one partition at a time.
    """

    def __init__(self, target: LogDirTarget, owner: tuple[int, int]) -> None:
        self.target = target
        self.owner = owner
        self.changing = asyncio.Lock()

    def give_to_owner(self, path: Path) -> None:
        """Give a file or a directory with all its files to the owner of the log dir, if this process is root."""
        if os.geteuid():
            return
        for each in (path, *(path.iterdir() if path.is_dir() else ())):
            os.chown(each, *self.owner, follow_symlinks=False)


@asynccontextmanager
async def held_log_dir(target: LogDirTarget, plans: Sequence[PartitionPlan]) -> AsyncIterator[HeldLogDir]:
    """Check the target and hold the broker's lock until the end; nothing is written into a target that is refused.

    Args:
        target: the log dir and its stage.
        plans: of the partitions that are to be restored into it; the file system must have room for them.

    Raises:
        LogDirLockedError: a broker, or another process, has the log dir.
        RefusedError: the stage lies in a log dir or on another file system, or other users can write into it; there is
            no room; the log dir is of another cluster or node, has a directory that no broker starts with, or its
            owner and mode do not let a broker use what is written.
        LogError: the log dir or a checkpoint in it cannot be read.
        OSError: the stage cannot be made.
    """
    await in_thread(_require_no_link, target.stage)
    absolute = replace(
        target,
        log_dir=target.log_dir.resolve(),
        stage=target.stage.resolve(),
        other_log_dirs=tuple(path.resolve() for path in target.other_log_dirs),
    )
    locks: list[LogDirLock] = []
    try:
        yield await in_thread(_hold, absolute, plans, locks)
    finally:
        for lock in locks:
            await in_thread(lock.release)


def _hold(target: LogDirTarget, plans: Sequence[PartitionPlan], locks: list[LogDirLock]) -> HeldLogDir:
    """Check, lock, and make the stage; the lock is in ``locks`` also when the caller was cancelled meanwhile."""
    owner = _usable_owner(target.log_dir)
    require_unlocked(target.log_dir)
    for check in (_require_sound_stage, _require_own_stage, _require_identity, _require_startable, _require_owned):
        check(target)
    _require_room(target, plans)
    for name in CHECKPOINTS:
        read_offset_checkpoint(target.log_dir / name)  # a file that cannot be read is found before the work
    locks.append(LogDirLock.acquire(target.log_dir))
    held = HeldLogDir(target, owner)
    held.give_to_owner(target.log_dir / LOCK_FILE)  # a broker opens it, also after this process was killed
    make_private_directory(target.stage)
    return held


def _usable_owner(log_dir: Path) -> tuple[int, int]:
    try:
        status = log_dir.stat()
    except FileNotFoundError as error:
        raise RefusedError(
            f"{log_dir} does not exist", remedy="make the log dir, owned by the user that the broker runs as"
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise RefusedError(f"{log_dir} is no directory", remedy="name a directory of log.dirs")
    if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        raise RefusedError(
            f"{log_dir} has mode {stat.S_IMODE(status.st_mode):04o}: its owner cannot read and write it",
            remedy=f"chmod u+rwx {log_dir}",
        )
    if os.geteuid() not in (0, status.st_uid):
        raise RefusedError(
            f"{log_dir} belongs to user id {status.st_uid}, and this process runs as {os.geteuid()}",
            remedy="run the restore as the user that the broker runs as, or as root",
        )
    return status.st_uid, status.st_gid


def _require_sound_stage(target: LogDirTarget) -> None:
    log_dirs = (target.log_dir, *target.other_log_dirs)
    for place in (target.stage, *target.stage.parents):
        if place in log_dirs or (place / _META_PROPERTIES).exists():
            raise RefusedError(
                f"the stage {target.stage} lies in the log dir {place}: a broker would not start with it",
                remedy="name a directory beside the log dir, on the same file system",
            )
    existing = nearest_existing(target.stage)
    if existing.stat().st_dev != target.log_dir.stat().st_dev:
        raise RefusedError(
            f"the stage {target.stage} is on another file system than {target.log_dir}",
            remedy="name a directory on the same file system: a finished partition is renamed into the log dir",
        )


def _require_no_link(stage: Path) -> None:
    if stage.is_symlink():
        raise RefusedError(f"the stage {stage} is a symbolic link", remedy="name the directory itself with --stage")


def _require_own_stage(target: LogDirTarget) -> None:
    """Refuse a stage in which another user could put other files in the place of checked ones, or links."""
    try:
        status = target.stage.stat()
    except FileNotFoundError:
        return
    owners = {os.geteuid(), *(() if os.geteuid() else (target.log_dir.stat().st_uid,))}
    if status.st_uid not in owners:
        raise RefusedError(
            f"the stage {target.stage} belongs to user id {status.st_uid}, and this process runs as {os.geteuid()}",
            remedy="run the restore as that user if it began it, or name another directory with --stage",
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RefusedError(
            f"other users may write into the stage {target.stage}",
            remedy="name a directory that does not exist yet with --stage; tierd makes it for its user alone",
        )


def _require_identity(target: LogDirTarget) -> None:
    meta = read_meta_properties(target.log_dir)
    if meta is None:
        return
    if target.cluster_id is not None and meta.cluster_id != target.cluster_id:
        raise RefusedError(
            f"{target.log_dir} belongs to cluster {meta.cluster_id}, not to {target.cluster_id}",
            remedy="name a log dir of that cluster, or restore with the mode import",
        )
    if target.node_id is not None and meta.node_id not in (None, target.node_id):
        raise RefusedError(
            f"{target.log_dir} belongs to node {meta.node_id}, not to {target.node_id}",
            remedy="name a log dir of that broker",
        )


def _require_startable(target: LogDirTarget) -> None:
    """Refuse a log dir with a directory that is no partition's: a broker does not start with it."""
    strange = [name for name, _ in list_log_dir(target.log_dir).ignored if not _is_partition(name)]
    if strange:
        raise RefusedError(
            f"{target.log_dir} has directories that are no partitions: {_first(strange)}; a broker would not start",
            remedy="move them away, or name a directory within as the log dir, here and in the broker's log.dirs",
        )


def _is_partition(name: str) -> bool:
    try:
        parse_directory_name(name)
    except PartitionNameError:
        return False
    return True


def _require_owned(target: LogDirTarget) -> None:
    owner = target.log_dir.stat().st_uid
    foreign = sorted(
        path.name for path in target.log_dir.iterdir() if path.lstat().st_uid not in _allowed(path.name, owner)
    )
    if foreign:
        raise RefusedError(
            f"{target.log_dir} belongs to user id {owner}, but not all that is in it: {_first(foreign)}",
            remedy=f"chown -R {owner} {target.log_dir}: a broker cannot use what belongs to another user",
        )


def _allowed(name: str, owner: int) -> set[int]:
    """Return the users to whom a file of the log dir may belong; a killed restore of root leaves its lock file."""
    return {owner, os.geteuid()} if name == LOCK_FILE else {owner}


def _require_room(target: LogDirTarget, plans: Sequence[PartitionPlan]) -> None:
    needed = sum(plan.fetch_bytes * (2 if plan.mode is RestoreMode.IMPORT else 1) for plan in plans)
    needed = int(needed * _HEADROOM)
    there = sum(path.stat().st_size for path in _fetched_logs(target.stage))
    free = shutil.disk_usage(target.log_dir).free
    if free + there < needed:
        raise RefusedError(
            f"{target.log_dir}: {free} bytes are free, and the restore needs {needed - there}",
            remedy="make room, or restore fewer partitions at a time",
        )


def _fetched_logs(stage: Path) -> Iterator[Path]:
    return stage.glob(f"*/*/{PARTS}/*.log")


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
