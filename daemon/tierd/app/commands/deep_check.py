"""DeepCheckRound: a deep check of a large tier in as many runs as it takes; each segment is downloaded once a round.

The file is a journal (``tierd.restore.Journal``), whose job is the tier and the partitions::

    {"tierd_check_journal":1,"job":{…}}
    {"begun_ms":…}                                         the round begins
    {"checked_ms":…,"segment":"…","row":"…"}               a segment without a fault; "row" is a digest of its metadata
    {"complete_ms":…}                                      every segment was checked; the next run begins anew

A segment whose metadata has changed since is checked again, and so is one with a fault, in every run.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self

from tierd.clock import Clock
from tierd.errors import RefusedError, StateDirError
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, uuid_to_text
from tierd.restore import Journal, JournalOfAnotherJobError

_WORK: Final = "check"


@dataclass(frozen=True, slots=True)
class RoundStatistics:
    """Finished segments of a round.

    Attributes:
        begun_ms: wall clock of the begin of the round.
        segments: that this run has met.
        checked: of these, without a fault in this round.
        checked_now: of these, downloaded by this run.
        left: not downloaded in this round, for want of time.
    """

    begun_ms: int
    segments: int = 0
    checked: int = 0
    checked_now: int = 0
    left: int = 0


class DeepCheckRound:
    """Choice of the segments that the present round has not checked yet. A context manager that closes its file."""

    def __init__(self, journal: Journal, *, clock: Clock, duration_s: float = math.inf) -> None:
        """Continue the round of ``journal``, or begin one; take segments for ``duration_s`` seconds from now on."""
        self._journal = journal
        self._clock = clock
        self._ends_s = clock.monotonic_s() + duration_s
        if not journal.steps:
            journal.append({"begun_ms": clock.now_ms()})
        self._begun_ms = int(journal.steps[0]["begun_ms"])
        self._checked = {str(step["segment"]): str(step["row"]) for step in journal.steps if "segment" in step}
        self._before = self._now = self._met = self._left = 0

    @classmethod
    def in_file(cls, path: Path, job: Mapping[str, Any], *, clock: Clock, duration_s: float = math.inf) -> Self:
        """Open the file of a check, or begin it. Blocking.

        Args:
            path: the file; its directory exists.
            job: what tells this check from others: the tier and the partitions; JSON values.
            clock: time.
            duration_s: seconds for which segments are taken.

        Raises:
            AlreadyRunningError: another process has the file open.
            RefusedError: the file is that of another check.
            StateDirError: the file cannot be read or written, or is damaged.
        """
        try:
            journal = _round_under_way(path, job)
            try:
                return cls(journal, clock=clock, duration_s=duration_s)
            except BaseException:
                journal.close()
                raise
        except JournalOfAnotherJobError as error:
            remedy = "name another file with --resume, or give the partitions of that check"
            raise RefusedError(f"{path} is of a check of another tier or of other partitions", remedy=remedy) from error
        except (StateDirError, KeyError, ValueError, TypeError) as error:
            remedy = "name another file with --resume; the check then begins anew"
            raise StateDirError(f"{path} cannot be used: {error}", remedy=remedy) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()

    @property
    def downloads(self) -> bool:
        """Return True: which segments are left is not known before the tier was walked."""
        return True

    def open(self, partition: TopicIdPartition, rows: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Do nothing: each segment is judged by itself."""

    def takes(self, row: RemoteLogSegmentMetadata | None) -> bool:
        """Return True for a finished segment that this round has not checked as it is, while there is time."""
        if row is None or row.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            return False
        self._met += 1
        if self._checked.get(uuid_to_text(row.segment.id)) == _digest(row):
            self._before += 1
            return False
        if self._clock.monotonic_s() >= self._ends_s:
            self._left += 1
            return False
        return True

    async def passed(self, rows: Sequence[RemoteLogSegmentMetadata]) -> None:
        """Make durable that these segments have no fault. Cancelled, some of them may be checked again."""
        for row in rows:
            segment, digest = uuid_to_text(row.segment.id), _digest(row)
            step = {"checked_ms": self._clock.now_ms(), "segment": segment, "row": digest}
            await asyncio.to_thread(self._journal.append, step)
            self._checked[segment] = digest
        self._now += len(rows)

    async def finish(self) -> RoundStatistics:
        """Return what was checked, after the whole tier was walked; without a segment left, the round is complete."""
        if not self._left:
            await asyncio.to_thread(self._journal.append, {"complete_ms": self._clock.now_ms()})
        return RoundStatistics(
            begun_ms=self._begun_ms,
            segments=self._met,
            checked=self._before + self._now,
            checked_now=self._now,
            left=self._left,
        )


def _round_under_way(path: Path, job: Mapping[str, Any]) -> Journal:
    """Return the journal at ``path``, or a new one in the place of that of a complete round."""
    journal = Journal.open(path, job, work=_WORK)
    if not journal.steps or "complete_ms" not in journal.steps[-1]:
        return journal
    with journal:
        path.unlink(missing_ok=True)
    return Journal.open(path, job, work=_WORK)


def _digest(row: RemoteLogSegmentMetadata) -> str:
    return blake2b(repr(row).encode(), digest_size=16).hexdigest()
