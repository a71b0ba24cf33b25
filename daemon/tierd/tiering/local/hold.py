"""SegmentHold: a rolled segment cannot vanish before its copy is finished (design: two kinds of log dir).

::

    <hold dir>/<topic id>/<partition>/<20-digit base>-<next base>-<inode>.log, …    (held_files.py)

Nothing is written into a log dir: a hard link changes only the inode's link count. Where linking is impossible the
files are kept open instead, which a restart of tierd does not survive.
"""

import asyncio
import contextlib
import errno
import resource
import shutil
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal

import structlog

from tierd.errors import SegmentChangedError, TierError
from tierd.log import PartitionScan, SegmentFiles, segment_at
from tierd.model import OffsetRange, PartitionKey, uuid_from_text, uuid_to_text
from tierd.tiering.copy_plan import overlaps
from tierd.tiering.local.held_directories import UNFINISHED_SUFFIX, held_in, stem_of
from tierd.tiering.local.held_files import (
    completed,
    discard,
    link_segment,
    open_segment,
    recovered,
    without_directory,
)
from tierd.tiering.local.held_register import HeldRegister, HoldStatistics, LogDirHold
from tierd.tiering.local.held_segment import HeldSegment, HoldKind
from tierd.tiering.local.rolled import (
    CoveredOffsets,
    as_it_ends,
    is_cut_off,
    is_empty,
    is_superseded,
    is_within,
    log_of,
    require_as_listed,
    rolled_segments,
    unprotected,
)

log = structlog.get_logger()

HoldMode = Literal["auto", "link", "descriptor", "none"]

# These say that links will never work for that log dir; a full disk says it only of this moment.
_LINKS_IMPOSSIBLE = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOTSUP, errno.EMLINK, errno.ENOTDIR}
)

_AT_ONCE: Final = 4  # partitions of one log dir whose segments are taken at the same time


class SegmentHold:
    """Holds of queued segments of every partition. Blocking; safe to call from several threads, one per partition."""

    def __init__(
        self, *, mode: HoldMode, hold_dir: Path, max_bytes: int | None, max_descriptors: int | None = None
    ) -> None:
        """Hold at most ``max_bytes`` of log files, None for no limit, and by default half the limit of descriptors."""
        self._mode: HoldMode = mode
        self._hold_dir = hold_dir
        self._max_bytes = max_bytes
        self._max_descriptors = (
            resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 if max_descriptors is None else max_descriptors
        )
        self._register = HeldRegister()
        self._turns: dict[Path, asyncio.Semaphore] = {}

    def turn(self, log_dir: Path) -> asyncio.Semaphore:
        """Return the turns of a log dir, of which a caller takes one for a call of ``protect`` in a thread.

        Linking is many short system calls. Dozens of threads that make them take the interpreter from each other and
        from the event loop after each one, and hold nothing earlier. A log dir that hangs uses up its own turns only.
        """
        return self._turns.setdefault(log_dir, asyncio.Semaphore(_AT_ONCE))

    def recover(self) -> int:
        """Find the links that an earlier process left; return how many segments they hold. Call once, first.

        Names that are not tierd's are left alone: a person may have made them. So is a hold that cannot be understood,
        which is logged.
        """
        count = 0
        for topic_dir in _directories(self._hold_dir):
            for partition_dir in _directories(topic_dir):
                try:
                    key = (uuid_from_text(topic_dir.name), int(partition_dir.name))
                except ValueError:
                    log.warning("hold_not_understood", path=str(partition_dir))
                    continue
                count += self._recover_partition(key, partition_dir)
        return count

    def protect(
        self, scan: PartitionScan, *, copied_through: int, holes: Sequence[OffsetRange] = (), share: float = 1.0
    ) -> tuple[HeldSegment, ...]:
        """Bring the holds of one partition in line with what is on disk.

        Releases what is in the tier already (ends at or below ``copied_through``) and what is no part of the log any
        more, holds what has rolled since, and returns every rolled segment above ``copied_through``, or with an offset
        of ``holes``, ascending:
        held, held and deleted by the broker meanwhile, or without protection where nothing else was possible. For this
        partition no more than ``share`` of ``max_bytes`` is used, by all partitions together. While the log is empty,
        what it does not have is neither released nor returned.
        """
        key = (scan.directory.partition.topic_id, scan.directory.partition.partition)
        sources: dict[int, HeldSegment] = {}
        superseded: list[HeldSegment] = []
        for held in self.held(key):
            if held.end_offset <= copied_through and not overlaps(holes, held.base_offset, held.end_offset):
                self.release(key, held.base_offset)
            elif is_superseded(held, scan):
                superseded.append(held)
            else:
                sources[held.base_offset] = self._complete(key, held, scan.directory.path)
        is_whole = self._take_rolled(key, scan, sources, copied_through=copied_through, holes=holes, share=share)
        if superseded and is_empty(scan):  # a replica that was lost and fetches anew; this may be all that is left
            superseded = [held for held in superseded if not held.log_file.size_bytes]
        for held in superseded:
            if is_whole or is_cut_off(held, scan) or is_within(held, sources.values()):
                self._release(key, held)
            else:  # what took its place is gone in its turn: this may be all that is left
                sources[held.base_offset] = held
        return tuple(sources[base] for base in sorted(sources))

    def _take_rolled(
        self,
        key: PartitionKey,
        scan: PartitionScan,
        sources: dict[int, HeldSegment],
        *,
        copied_through: int,
        holes: Sequence[OffsetRange],
        share: float,
    ) -> bool:
        """Add what has rolled to ``sources``; return whether all of it was as it had been listed."""
        unheld, reason, is_whole = 0, "", True
        covered = CoveredOffsets(sources.values())
        for listed in rolled_segments(scan):
            assert listed.next_base_offset is not None, "rolled segments have an end"
            last = listed.next_base_offset - 1
            is_copied = last <= copied_through and not overlaps(holes, listed.base_offset, last)
            if is_copied or covered.has_all_of(listed):
                continue
            try:
                source, why_not = self._take(key, as_it_ends(listed, scan) if listed.deleted else listed, scan, share)
            except SegmentChangedError:
                is_whole = False  # gone between the listing and now; the next listing tells what happened to it
                continue
            sources[source.base_offset] = source
            covered.add(source)
            if source.kind is HoldKind.NONE and self._mode != "none":
                unheld, reason = unheld + 1, why_not
        self._register.note_unheld(key, unheld, reason)
        return is_whole

    def concerns(self, scan: PartitionScan) -> bool:
        """Return True if ``protect`` may have anything to do, or to take back, for that partition. Does not block."""
        if scan.deleted_segments or len(scan.segments) > 1:
            return True
        key = (scan.directory.partition.topic_id, scan.directory.partition.partition)
        return self._register.concerns(key)

    def held(self, key: PartitionKey) -> tuple[HeldSegment, ...]:
        """Return the held segments of a partition, ascending."""
        return self._register.of(key)

    def release(self, key: PartitionKey, base_offset: int) -> None:
        """Release one segment; one that is not held is no error."""
        held = self._register.get(key, base_offset)
        if held is not None:
            self._release(key, held)

    def _release(self, key: PartitionKey, held: HeldSegment) -> None:
        """Release this very segment, unless it was released already, or another is held in its place."""
        if self._register.remove(key, held):
            discard(held)

    def release_if_live(self, scan: PartitionScan, base_offset: int) -> None:
        """Release a segment whose files are still in the log, so that the next ``protect`` holds them as they are.

        Meant for a segment that lacked a file, or had a damaged one, when it was held: the file may be restored by now.
        """
        key = (scan.directory.partition.topic_id, scan.directory.partition.partition)
        live = segment_at(scan.segments, base_offset)  # thousands may be held of thousands
        if live is not None and live.log.exists():
            self.release(key, base_offset)

    def drop_partition(self, key: PartitionKey) -> int:
        """Release all segments of a partition that is gone or not copied; return how many there were."""
        held = self.held(key)
        for segment in held:
            self.release(key, segment.base_offset)
        self._register.forget(key)
        topic_dir = self._hold_dir / uuid_to_text(key[0])
        for emptied in (topic_dir / str(key[1]), topic_dir):
            with contextlib.suppress(OSError):
                emptied.rmdir()
        return len(held)

    def partitions(self) -> Collection[PartitionKey]:
        """Return the partitions with a held segment."""
        return self._register.partitions()

    def statistics(self) -> HoldStatistics:
        """Return the sums over all partitions, and the kind of the holds in each log dir."""
        return self._register.statistics()

    def close(self) -> None:
        """Close the descriptors. Links stay: the next process finds them again."""
        for segment in self._register.clear():
            if segment.kind is HoldKind.DESCRIPTOR:
                discard(segment)

    def _take(
        self, key: PartitionKey, segment: SegmentFiles, scan: PartitionScan, share: float
    ) -> tuple[HeldSegment, str]:
        """Hold ``segment`` if that is possible; return it, and the reason if it is not held."""
        if self._mode == "none":
            return unprotected(segment, scan), ""
        listed = log_of(segment, scan)
        if self._max_bytes is not None and self._register.bytes + listed.size_bytes > share * self._max_bytes:
            return unprotected(segment, scan), f"hold.max_bytes ({self._max_bytes}) is reached"
        held, why_not = self._hold(key, listed, segment, scan)
        if held is None:
            return unprotected(segment, scan), why_not
        previous = self._register.add(key, held)
        if previous is not None and (previous.kind is HoldKind.DESCRIPTOR or previous.root != held.root):
            discard(previous)
        return held, ""

    def _complete(self, key: PartitionKey, held: HeldSegment, directory: Path) -> HeldSegment:
        whole = completed(held, directory)
        if whole is not held:
            self._register.add(key, whole)
        return whole

    def _hold(
        self, key: PartitionKey, listed: HeldSegment, segment: SegmentFiles, scan: PartitionScan
    ) -> tuple[HeldSegment | None, str]:
        log_dir = segment.directory.parent
        decided = self._register.decided(log_dir)
        reason = decided.reason if decided else ""
        if self._mode != "descriptor" and not (decided and decided.kind is HoldKind.DESCRIPTOR):
            try:
                held = self._link(key, listed, segment)
            except OSError as error:
                reason = f"cannot link into {self._hold_dir}: {error.strerror}"
                if error.errno in _LINKS_IMPOSSIBLE and self._mode == "auto":
                    self._decide(LogDirHold(log_dir, HoldKind.DESCRIPTOR, reason))
                if self._mode == "link":
                    self._decide(LogDirHold(log_dir, HoldKind.NONE, reason))
                    return None, reason
            else:
                self._decide(LogDirHold(log_dir, HoldKind.LINK))
                return held, ""
        else:
            self._decide(LogDirHold(log_dir, HoldKind.DESCRIPTOR, reason))
        return self._open(unprotected(segment, scan), segment, reason)

    def _decide(self, decided: LogDirHold) -> None:
        previous = self._register.decide(decided)
        if decided.reason and decided != previous:
            log.warning("hold_by_link_impossible", log_dir=str(decided.log_dir), reason=decided.reason)

    def _link(self, key: PartitionKey, listed: HeldSegment, segment: SegmentFiles) -> HeldSegment:
        stem = f"{self._hold_dir}/{uuid_to_text(key[0])}/{key[1]}/{stem_of(listed)}"
        return link_segment(
            listed,
            stem,
            is_deleted=segment.deleted,
            neighbour=self._register.latest(key),
            require=partial(require_as_listed, listed, segment),
        )

    def _open(self, plain: HeldSegment, segment: SegmentFiles, reason: str) -> tuple[HeldSegment | None, str]:
        if self._register.descriptors + len(plain.present) > self._max_descriptors:
            return None, f"{reason or 'held by descriptor'}; {self._max_descriptors} descriptors are in use"
        try:
            return open_segment(plain, require=partial(require_as_listed, plain, segment)), ""
        except OSError as error:
            return None, f"cannot open {error.filename}: {error.strerror}"

    def _recover_partition(self, key: PartitionKey, folder: Path) -> int:
        for path in _directories(folder):
            if path.name.endswith(UNFINISHED_SUFFIX):
                shutil.rmtree(path, ignore_errors=True)
        try:
            segments, unfinished = held_in(folder)
        except OSError as error:
            log.warning("hold_dir_unreadable", path=str(folder), problem=error.strerror)
            return 0
        for link in unfinished:
            with contextlib.suppress(OSError):
                link.unlink()
        return sum(self._recover_segment(key, path) for path in segments)

    def _recover_segment(self, key: PartitionKey, path: Path) -> bool:
        try:
            held = recovered(path)
        except (ValueError, OSError, TierError) as error:
            log.warning("hold_not_understood", path=str(path), error=str(error))
            return False
        if held.kind is not HoldKind.LINK:
            with contextlib.suppress(OSError, SegmentChangedError):  # then its files are read where they are
                held = without_directory(held)
        previous = self._register.add(key, held)
        if previous is not None and previous.root != held.root:  # the one that replaced it reaches as far or further
            discard(previous)
        return previous is None


def _directories(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("hold_dir_unreadable", path=str(path), problem=error.strerror)
        return []
