"""Driver of the copy plan: due segments of a log, and the end of the tier.

::

    log 0 100 200                    first offsets of the local segments; the last segment is active
    epochs 0@0,1@150                 leader-epoch-checkpoint of the log: each leader epoch at its first offset
    high-watermark 220
    batch 150 producer=7             a transactional batch at that offset, and its producer
    commit 210 producer=7            the marker that ends the transaction; abort as well
    newest 100 age=2h                age of the newest record of the segment that begins at 100
    delay 1h                         copy a segment only when its newest record is that old (remote.copy.lag.ms)
    log-start 150                    first offset of both tiers
    damage 100-199                   the segment is no longer in the tier
    plan                             show the decisions
    copy                             show the decisions, and make the copies
    wait 1h
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from tests.fakes.remote_segments import PARTITION
from tests.log.producer_steps import data
from tests.transcripts.drivers.tier import Tier
from tests.transcripts.transcript import Command
from tests.transcripts.units import NOW_MS, parse_duration, parse_epochs, parse_offsets, show_duration, show_offsets
from tierd.log import ControlRecordType, DirectoryKind, PartitionDirectory, PartitionScan, SegmentFiles
from tierd.log.producers.transactions import OpenTransactions
from tierd.metadata import effective_lineage
from tierd.model import Lineage, OffsetRange
from tierd.tiering.copy_plan import (
    NOTHING_COPIED,
    Age,
    CopyDelay,
    Ripe,
    copy_candidates,
    first_offset_due,
    gaps,
    ripe_segments,
    rolled_after,
)
from tierd.tiering.copying.frontier import frontier, holes
from tierd.tiering.local.broker_state import BrokerOffsets

_LOG_DIR = Path("/kafka/orders-0")


class Copying:
    """Log of a leader and its tier."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self._tier = Tier()
        self._segments: tuple[SegmentFiles, ...] = ()
        self._lineage = Lineage.of([(0, 0)])
        self._high_watermark = 0
        self._transactions = OpenTransactions()
        self._newest_ms: dict[int, int] = {}
        self._delay = CopyDelay()
        self._now_ms = NOW_MS

    def run(self, command: Command) -> Iterator[str]:
        """Carry out a command; ``plan`` and ``copy`` yield the decisions."""
        match command.name:
            case "log":
                bases = [int(word) for word in command.words()]
                ends = [*(following for _, following in pairwise(bases)), None]
                self._segments = tuple(SegmentFiles(_LOG_DIR, *each) for each in zip(bases, ends, strict=True))
            case "epochs":
                self._lineage = parse_epochs(command.word())
            case "high-watermark":
                self._high_watermark = int(command.word())
            case "batch" | "commit" | "abort":
                self._append(command)
            case "newest":
                self._newest_ms[int(command.word())] = self._now_ms - parse_duration(command.option("age"))
            case "delay":
                self._delay = CopyDelay(lag_ms=parse_duration(command.word()), lag_bytes=-1)
            case "log-start":
                self._tier.move_log_start(int(command.word()))
            case "damage":
                self._tier.remove(self._tier.at(parse_offsets(command.word())), now_ms=self._now_ms)
            case "plan" | "copy":
                yield from self._plan(is_done=command.name == "copy")
            case "wait":
                self._now_ms += parse_duration(command.word())
            case _:
                raise command.unknown()

    def _append(self, command: Command) -> None:
        offset, producer_id = int(command.word()), int(command.option("producer"))
        is_marker = command.name != "batch"
        header = data(offset, -1 if is_marker else 0, producer_id=producer_id, transactional=True, control=is_marker)
        self._transactions.apply(header, ControlRecordType[command.name.upper()] if is_marker else None)

    def _plan(self, *, is_done: bool) -> Iterator[str]:
        scan = self._scan()
        log_start = self._tier.view.log_start_offset or 0
        copied = frontier(self._tier.view, scan)
        yield (
            "nothing is copied" if copied == NOTHING_COPIED else f"copied through {copied.offset}, epoch {copied.epoch}"
        )
        missing = holes(
            self._tier.view,
            scan,
            BrokerOffsets(self._high_watermark, None),
            log_start_offset=log_start,
            copied_through=copied.offset,
        )
        yield from (f"hole {show_offsets(hole)}" for hole in missing)
        due_from = first_offset_due(copied_through=copied.offset, log_start_offset=log_start)
        yield from (f"lost {show_offsets(gap)}" for gap in gaps(self._segments, due_from=due_from))
        stable = self._last_stable_offset()
        yield f"stable below {stable}"
        due = copy_candidates(
            self._segments,
            copied_through=copied.offset,
            log_start_offset=log_start,
            last_stable_offset=stable,
            holes=missing,
        )
        ripe = self._ripe([candidate.segment for candidate in due])
        for candidate in due[: ripe.segments]:
            offsets = OffsetRange(candidate.segment.base_offset, candidate.end_offset)
            yield f"copy {show_offsets(offsets)}"
            if is_done:
                self._copy(offsets)
        for candidate in due[ripe.segments :]:
            yield f"delay {candidate.segment.base_offset}-{candidate.end_offset}"
        if ripe.next_due_ms is not None:
            yield f"next plan in {show_duration(ripe.next_due_ms - self._now_ms)}"
        rolled = rolled_after(self._segments, copied_through=copied.offset, log_start_offset=log_start, holes=missing)
        chosen = [candidate.segment for candidate in due]
        yield from (f"not stable {each.base_offset}-{each.end_offset}" for each in rolled if each not in chosen)

    def _scan(self) -> PartitionScan:
        directory = PartitionDirectory(
            _LOG_DIR, PARTITION.topic_partition, PARTITION.topic_id, DirectoryKind.CURRENT, 1
        )
        return PartitionScan(directory, self._segments, (), self._lineage, mtime_ns=1)

    def _last_stable_offset(self) -> int:
        """Return the lower of high watermark and first unstable offset, as ``log.last_stable_offset`` does."""
        unstable = self._transactions.first_unstable_offset
        return self._high_watermark if unstable is None else min(unstable, self._high_watermark)

    def _ripe(self, due: Sequence[SegmentFiles]) -> Ripe:
        ages = [Age(self._newest_ms.get(each.base_offset), bytes_after=0) for each in due]
        return ripe_segments(ages, self._delay, now_ms=self._now_ms)

    def _copy(self, offsets: OffsetRange) -> None:
        lineage = effective_lineage(self._tier.view, self._lineage).entries_in(offsets.start, offsets.end + 1)
        begun = self._tier.begin(offsets, lineage, size_bytes=1, newest_ms=self._now_ms, now_ms=self._now_ms)
        self._tier.finish(begun, now_ms=self._now_ms)
