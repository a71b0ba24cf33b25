"""GroupsReader: follows the partitions of ``__consumer_offsets`` that this broker leads, in its log dirs.

A partition is read from its log start once, then only what was appended. It is read anew after the leader epoch has
changed, where the log start has passed the position, and after a pause in which the log cleaner may have removed
tombstones that were not read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tierd.errors import LogError, RefusedError, SegmentChangedError
from tierd.log import LocalLog, iter_batches
from tierd.restore.catalogue.catalogue_objects import CoordinatedGroups
from tierd.restore.catalogue.group_commits import GroupCommits
from tierd.restore.catalogue.local_partitions import LocalPartition

MAX_COMMITS: Final = 400_000
"""Commits of one broker; a positions object can hold so many."""

_PIECE_BYTES: Final = 1 << 20
_STEP_BYTES: Final = 8 << 20
_PAUSE_MS: Final = 3_600_000  # far below the delete.retention.ms of a day that __consumer_offsets has


@dataclass(slots=True)
class _FollowedOffsets:
    """One partition of ``__consumer_offsets``.

    Attributes:
        read_ms: time of the last read that ended at the high watermark.
        problem: reason why the last read failed; empty if it did not.
    """

    leader_epoch: int
    read_ms: int
    commits: GroupCommits = field(default_factory=GroupCommits)
    problem: str = ""


class GroupsReader:
    """Committed offsets of the groups that this broker coordinates. Calls block, one at a time."""

    def __init__(self, *, max_commits: int = MAX_COMMITS) -> None:
        self._max_commits = max_commits
        self._followed: dict[int, _FollowedOffsets] = {}

    @property
    def problem(self) -> str:
        """Return why the groups of a partition are missing or not whole; empty without a problem."""
        for number, each in sorted(self._followed.items()):
            if each.problem:
                return f"__consumer_offsets-{number}: {each.problem}"
        skipped = sum(each.commits.skipped.count for each in self._followed.values())
        last = next((p for each in self._followed.values() if (p := each.commits.skipped.problem)), "")
        return f"{skipped} records of __consumer_offsets were not understood, such as {last}" if skipped else ""

    @property
    def unread(self) -> frozenset[int]:
        """Return the partitions whose last read failed."""
        return frozenset(number for number, each in self._followed.items() if each.problem)

    def lead(self, led: Mapping[int, int], *, now_ms: int) -> None:
        """Follow these partitions, by number with their leader epochs, and no others from now on."""
        for number in [number for number in self._followed if number not in led]:
            del self._followed[number]
        for number, leader_epoch in led.items():
            known = self._followed.get(number)
            if known is None or known.leader_epoch != leader_epoch or now_ms - known.read_ms > _PAUSE_MS:
                self._followed[number] = _FollowedOffsets(leader_epoch, now_ms)

    def read(self, number: int, local: LocalPartition, *, now_ms: int) -> bool:
        """Read a few MiB of a partition that is followed; return True if there is more below its high watermark.

        A fault of the log is kept as the problem of the partition, whose groups are left out until it is over.
        """
        followed = self._followed[number]
        try:
            has_more = self._read(followed, local)
        except (LogError, RefusedError) as error:
            followed.problem = str(error)
            return False
        followed.problem = ""
        if not has_more:
            followed.read_ms = now_ms
        return has_more

    def coordinated(self, *, now_ms: int) -> dict[int, CoordinatedGroups]:
        """Return the groups of every partition that was read to its high watermark without a fault."""
        return {
            number: CoordinatedGroups(leader_epoch=each.leader_epoch, groups=each.commits.positions(now_ms=now_ms))
            for number, each in self._followed.items()
            if not each.problem
        }

    def _read(self, followed: _FollowedOffsets, local: LocalPartition) -> bool:
        high_watermark = local.high_watermark or 0
        source = LocalLog(
            local.scan,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=local.log_start_offset,
        )
        if followed.commits.next_offset < source.log_start_offset:
            followed.commits = GroupCommits()
            followed.commits.next_offset = source.log_start_offset
        left = _STEP_BYTES
        commits = followed.commits
        while left > 0 and commits.next_offset < high_watermark:
            data = source.read(commits.next_offset, max_bytes=_PIECE_BYTES)
            if not data:
                commits.next_offset = _next_readable(local, commits.next_offset)
                continue
            for batch in iter_batches(data, name=str(local.scan.directory.path)):
                if batch.last_offset >= commits.next_offset:
                    commits.apply(batch)
            left -= len(data)
            self._require_room()
        return commits.next_offset < high_watermark

    def _require_room(self) -> None:
        """Raise if the commits of all partitions are more than a positions object holds.

        Raises:
            RefusedError: they are; delete groups.
        """
        if sum(len(each.commits) for each in self._followed.values()) > self._max_commits:
            raise RefusedError(
                f"the groups of this broker have more than {self._max_commits} committed offsets",
                remedy="delete groups that are not used any more; positions of groups are not catalogued meanwhile",
            )


def _next_readable(local: LocalPartition, offset: int) -> int:
    """Return the offset at which to go on where nothing was read from ``offset`` on, below the high watermark.

    The log cleaner may leave no batch before the active segment, in which it removes nothing.

    Raises:
        SegmentChangedError: the active segment lacks a sound batch, or the log was changed meanwhile.
    """
    active = local.scan.segments[-1].base_offset if local.scan.segments else 0
    if active <= offset:
        raise SegmentChangedError(
            f"no sound batch from offset {offset} on, below the high watermark {local.high_watermark}",
            remedy="if it stays, run tierd inspect on the directory",
        )
    return min(active, local.high_watermark or 0)
