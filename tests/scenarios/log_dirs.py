"""Log dirs seen without tierd, and changes to them as a broker makes them."""

import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts of a file or directory that tierd must not change; hard links to it may appear and disappear."""

    inode: int
    mode: int
    owner: tuple[int, int]
    size_bytes: int
    mtime_ns: int


def facts_below(log_dir: Path) -> dict[str, FileFacts]:
    """Return the facts of all paths below a log dir, with the log dir itself, by relative name."""
    facts = {}
    for path in [log_dir, *sorted(log_dir.rglob("*"))]:
        stat = path.lstat()
        facts[str(path.relative_to(log_dir))] = FileFacts(
            stat.st_ino, stat.st_mode, (stat.st_uid, stat.st_gid), stat.st_size, stat.st_mtime_ns
        )
    return facts


def copy_writable(source: Path, target: Path) -> None:
    """Copy a log dir whose files may be read-only, so that a test can change the copy."""
    shutil.copytree(source, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)


def base_offsets(partition_dir: Path) -> list[int]:
    """Return the base offsets of the segments, ascending; the last one is active."""
    return sorted(int(log.stem) for log in partition_dir.glob("*.log"))


def partition_dirs(log_dir: Path) -> list[Path]:
    """Return the current directories of the topics tiered by default: those whose name does not begin with ``__``."""
    found = (path for path in log_dir.iterdir() if (path / "partition.metadata").exists())
    return sorted(path for path in found if not path.name.startswith("__"))


def delete_copied_segments(partition_dir: Path, *, copied_through: int) -> int:
    """Delete the rolled segments that end at or below ``copied_through``, as retention of a broker does.

    Their producer snapshots are deleted too, and the epoch checkpoint forgets epochs below the first remaining segment.

    Returns:
        Number of deleted segments.
    """
    deleted = [base for base, successor in pairwise(base_offsets(partition_dir)) if successor - 1 <= copied_through]
    for base in deleted:
        for file in partition_dir.glob(f"{base:020d}.*"):
            file.unlink()
    if deleted:
        _forget_epochs_below(partition_dir / "leader-epoch-checkpoint", base_offsets(partition_dir)[0])
    return len(deleted)


def _forget_epochs_below(checkpoint: Path, offset: int) -> None:
    """Forget epochs as LeaderEpochFileCache.truncateFromStart does; the epoch of ``offset`` begins there."""
    entries = [(int(epoch), int(start)) for epoch, start in map(str.split, checkpoint.read_text().splitlines()[2:])]
    covered = [epoch for epoch, start in entries if start <= offset]
    kept = [(epoch, start) for epoch, start in entries if start > offset]
    if covered:
        kept.insert(0, (covered[-1], offset))
    checkpoint.write_text(f"0\n{len(kept)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in kept))
