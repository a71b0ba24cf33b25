"""One poll of a broker's log: the batches that came, and what became of the files meanwhile. Blocking; reads only.

::

    directory unchanged ───────────────────────────┐
    directory changed ── scan ── records as before ┴─► file as before? ── take batches ── rolled? ─► next segment ─┐
                             └── changed ─► restart ◄──── shrunk, or the last batch is another       ▲             │
                                                                                                     └─────────────┘
"""

import os
import time
from dataclasses import dataclass, replace
from typing import Final

from tierd.errors import CorruptRecordError, SegmentChangedError, TierError
from tierd.log import (
    OVERHEAD_BYTES,
    PartitionScan,
    Source,
    broker_file,
    crc_matches,
    identify_directory,
    open_source,
    parse_header,
)
from tierd.log import scan_partition as list_segments
from tierd.replication.tail.tail_start import begin_tail, has_same_epochs, rejoin_tail
from tierd.replication.tail.tail_values import (
    ANYTHING_CHANGED,
    FileStamp,
    LastBatch,
    TailAppend,
    TailPoll,
    TailPosition,
)
from tierd.replication.tail.whole_batches import TailStop, WholeBatches, whole_batches

_FIRST_BYTES: Final = 64 << 10  # behind the data of a preallocated file there are only zeros
_LARGE_BYTES: Final = 8 << 20  # a batch of this size is checked in steps before it is read as a whole
_FRESH_NS: Final = 100_000_000  # a later change might not move so young a modification time
_ZEROS_STEP: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TailPollRequest:
    """Task of one poll.

    Attributes:
        limit_offset: no batch that reaches this offset is taken; None without a limit.
        wants_descriptor: the receiver keeps the active file open.
    """

    position: TailPosition
    limit_offset: int | None
    max_bytes: int
    wants_descriptor: bool = False


def poll_tail(request: TailPollRequest) -> TailPoll:
    """Take the batches that came since the last poll. An error of the log is in the result."""
    walk = _LookWalk(request)
    try:
        return walk.run()
    except SegmentChangedError as error:
        return TailPoll(
            position=replace(walk.place, directory_mtime_ns=ANYTHING_CHANGED),
            appends=tuple(walk.appends),
            is_settled=False,
            is_gone=walk.is_gone,
            problem=error,
        )
    except TierError as error:
        return TailPoll(position=walk.place, appends=tuple(walk.appends), problem=error)


class _LogChangedError(Exception):
    """The records before the place may have changed."""


class _LookWalk:
    """State of one poll."""

    def __init__(self, request: TailPollRequest) -> None:
        self.place = request.position
        self.appends: list[TailAppend] = []
        self.is_gone = False
        self._request = request
        self._left = request.max_bytes
        self._scan: PartitionScan | None = None
        self._is_settled = True
        self._is_rejoined = False
        self._unread_bytes: int | None = None
        self._descriptor = -1

    def run(self) -> TailPoll:
        if self._is_drained():
            return TailPoll(position=self.place)
        try:
            if self._scan is not None:
                self._join(self._scan)
            self._take_segments()
        except _LogChangedError:
            if self.appends:  # these were in the log, before it changed
                return self._result(has_more=True)
            self.place = begin_tail(self.place.directory, limit_offset=self._request.limit_offset)
            return TailPoll(position=self.place, is_restarted=True, has_more=True)
        return self._result(has_more=self._left <= 0)

    def _result(self, *, has_more: bool) -> TailPoll:
        return TailPoll(
            position=self.place,
            appends=tuple(self.appends),
            has_more=has_more,
            is_settled=self._is_settled,
            unread_bytes=self._unread_bytes,
            descriptor=self._descriptor,
        )

    # ---------------------------------------------------------------- the directory

    def _is_drained(self) -> bool:
        """List the directory if it changed; return True if neither the directory nor the active file did."""
        place = self.place
        path = place.directory.path
        self.is_gone = True
        with broker_file(path):
            status = path.stat()
        is_listed = status.st_mtime_ns == place.directory_mtime_ns
        # A topic that was created again may have got the inode of the former directory, too.
        if status.st_ino != place.directory.inode or not (is_listed or identify_directory(path) == place.directory):
            raise SegmentChangedError(f"{path}: another directory has taken its name")
        self.is_gone = False
        if not is_listed:
            self._list()
            return False
        if place.drained is None:
            return False
        with broker_file(place.log):
            log = place.log.stat()
        return log.st_ino == place.inode and place.drained.is_of(log)

    def _list(self) -> PartitionScan | None:
        try:
            self._scan = list_segments(self.place.directory)
        except SegmentChangedError:
            # The broker replaces segments. The active one is not among them, so that the tail goes on meanwhile.
            self._is_settled = False
        return self._scan

    def _join(self, scan: PartitionScan, *, is_replaced: bool = False) -> None:
        """Find the place in the segments that are there now; ``is_replaced``: its file is another one."""
        if not scan.segments:
            raise SegmentChangedError(f"{scan.directory.path}: no segment yet")
        place, first_base = self.place, scan.segments[0].base_offset
        start = max(first_base, place.first_base)
        is_known = scan.lineage_problem is None
        if is_known and not has_same_epochs(place.lineage, scan.lineage, start=start, end=place.next_offset):
            raise _LogChangedError
        bases = {segment.base_offset: segment.next_base_offset for segment in scan.segments}
        if is_replaced or place.segment_base not in bases or not _is_last_there(place):
            found = rejoin_tail(place, scan)
            if found is None:
                raise _LogChangedError
            place = found
        self.place = replace(
            place,
            directory_mtime_ns=scan.mtime_ns,
            first_base=first_base,
            next_base=bases[place.segment_base],
            lineage=scan.lineage if is_known else place.lineage,
        )

    # ---------------------------------------------------------------- the segments

    def _take_segments(self) -> None:
        while self._left > 0:
            with open_source(self.place.log) as source:
                if not self._is_expected(source):
                    continue
                stop = self._take(source)
                if stop is None or stop is TailStop.LIMIT or not self._is_end_of_rolled(source, stop):
                    self._note_drained(source, stop)
                    self._note_unread(source, stop)
                    self._keep_open(source)
                    return
            self._move_on()

    def _is_expected(self, source: Source) -> bool:
        """Return False if the place was in another file with this name; it is found anew."""
        place = self.place
        if place.position == 0:
            self.place = replace(place, inode=source.inode)
        elif source.inode != place.inode:
            if self._is_rejoined:
                raise source.changed()
            self._is_rejoined = True
            self._join(list_segments(place.directory), is_replaced=True)
            return False
        elif source.size_bytes < place.position or not _is_unchanged(source, place):
            raise _LogChangedError
        return True

    def _is_end_of_rolled(self, source: Source, stop: TailStop | None) -> bool:
        """Return True if nothing of a rolled segment is left.

        Raises:
            CorruptRecordError: the rest is no batch; the broker had written all of the segment before it rolled.
        """
        place = self.place
        if place.next_base is None:
            return False
        if stop is TailStop.END or _has_only_zeros(source, place.position):
            return True
        raise CorruptRecordError(
            str(source.path), place.position, "no sound batch, although the broker has begun the next segment"
        )

    def _move_on(self) -> None:
        """Go to the next segment."""
        scan = self._scan
        if scan is None and (scan := self._list()) is not None:
            self._join(scan)
        base = self.place.next_base
        if base is None or base < self.place.next_offset:
            raise _LogChangedError
        segments = scan.segments if scan is not None else ()
        self.place = replace(
            self.place,
            # Without a listing the end of the next segment is not known: the next poll lists the directory.
            directory_mtime_ns=self.place.directory_mtime_ns if scan is not None else ANYTHING_CHANGED,
            segment_base=base,
            next_base=next((each.next_base_offset for each in segments if each.base_offset == base), None),
            inode=0,
            position=0,
            drained=None,
        )

    # ---------------------------------------------------------------- the batches

    def _take(self, source: Source) -> TailStop | None:
        """Take batches up to the end of the file, or up to the bound on bytes; return the reason of the end."""
        step = min(_FIRST_BYTES, self._left)
        while self._left > 0:
            rest = source.size_bytes - self.place.position
            data = source.read(self.place.position, min(step, rest))
            found = whole_batches(
                data,
                next_offset=self.place.next_offset,
                end_offset=self.place.end_offset,
                limit_offset=self._request.limit_offset,
            )
            if found.size_bytes:
                self._append(source, data, found)
            if len(data) < min(step, rest):  # the file became shorter, as the next poll will see
                return TailStop.TORN
            match found.stop:
                case TailStop.END if found.size_bytes < rest and data:
                    step = max(self._left, _FIRST_BYTES)
                case TailStop.TORN if len(data) < rest and found.wanted_bytes <= rest - found.size_bytes:
                    step = max(self._left, _FIRST_BYTES, found.wanted_bytes)
                    if found.wanted_bytes > _LARGE_BYTES and not self._is_sound(source):
                        return TailStop.BAD
                case _:
                    return found.stop
        return None

    def _append(self, source: Source, data: bytes, found: WholeBatches) -> None:
        place, size = self.place, found.size_bytes
        lineage = place.lineage
        for epoch, start_offset in found.epochs:
            if epoch >= 0 and lineage.epoch_for(start_offset) != epoch:
                lineage = lineage.assign(epoch=epoch, start_offset=start_offset)
        header = data[found.last_at : min(found.last_at + OVERHEAD_BYTES, size)]
        self.place = replace(
            place,
            position=place.position + size,
            next_offset=found.next_offset,
            last=LastBatch(place.segment_base, place.position + found.last_at, header),
            lineage=lineage,
            drained=None,
        )
        self.appends.append(
            TailAppend(
                place.segment_base,
                source.inode,
                place.next_offset,
                found.next_offset,
                data if size == len(data) else data[:size],
                found.offsets,
                [place.position + at for at in found.places],
                self.place.known_lineage,
            )
        )
        self._left -= size

    def _is_sound(self, source: Source) -> bool:
        """Check a large batch with little memory: its length may be the bytes of something else."""
        position = self.place.position
        header = parse_header(source.read(position, OVERHEAD_BYTES), 0, name=str(source.path), position=position)
        return header is not None and crc_matches(source, header)

    def _note_drained(self, source: Source, stop: TailStop | None) -> None:
        if stop is None or stop is TailStop.LIMIT or not self._is_settled:
            return
        status = os.fstat(source.fd)
        is_same = (status.st_size, status.st_mtime_ns) == (source.size_bytes, source.mtime_ns)
        if is_same and time.time_ns() - source.mtime_ns > _FRESH_NS:
            self.place = replace(self.place, drained=FileStamp(source.size_bytes, source.mtime_ns))

    def _note_unread(self, source: Source, stop: TailStop | None) -> None:
        position, self._unread_bytes = self.place.position, 0
        if stop in {TailStop.TORN, TailStop.BAD} and source.read(position, OVERHEAD_BYTES).strip(b"\0"):
            self._unread_bytes = source.size_bytes - position

    def _keep_open(self, source: Source) -> None:
        if self._request.wants_descriptor and self.appends:
            self._descriptor = os.dup(source.fd)


def _is_last_there(place: TailPosition) -> bool:
    """Return False if the last batch is in an earlier segment that is there, and is another one now."""
    last = place.last
    if last is None or last.segment_base == place.segment_base:
        return True
    earlier = replace(place, segment_base=last.segment_base)
    try:
        with open_source(earlier.log) as source:
            return source.read(last.position, len(last.header)) == last.header
    except SegmentChangedError:
        return True  # retention has removed it


def _is_unchanged(source: Source, place: TailPosition) -> bool:
    last = place.last
    if last is None or last.segment_base != place.segment_base:
        return True
    return source.read(last.position, len(last.header)) == last.header


def _has_only_zeros(source: Source, position: int) -> bool:
    while piece := source.read(position, _ZEROS_STEP):
        if piece.strip(b"\0"):
            return False
        position += len(piece)
    return True
