"""CleaningRound: one round of the cleaner over one log (log-format 9; Kafka: Cleaner.doClean).

::

    writer's thread         a thread of the cleaner
    ───────────────         ───────────────────────
    begin: facts     ──►    map the keys of the dirty segments
                            rewrite a group into x.log.cleaned, synced
    replace          ◄──    …
                            rewrite the next group
    (no group left)  ──►    cleaner-offset-checkpoint

The round reads rolled segments only, to which nothing is appended. Any other change of the log's files (truncation,
retention, a new name of the directory) moves ``names_version`` and so ends the round. The groups that were replaced
before stay replaced, and the checkpoint keeps its offset.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from errno import EDQUOT, ENOENT, ENOSPC
from typing import Final

from tierd.errors import LogError
from tierd.log.cleaning.cleanable_log import (
    CleanableLog,
    LogToMeasure,
    SegmentGroup,
    SegmentToClean,
    group_segments,
    measure,
)
from tierd.log.cleaning.cleaned_segment import CleanedSegment
from tierd.log.cleaning.cleaning_control import CleaningControl
from tierd.log.cleaning.round_rewriter import RoundFacts, RoundRewriter, SourceSegment, StartRewriting
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.partition.log_state import LogState
from tierd.log.records.log_config import MAX_LONG
from tierd.log.segments.log_segment import LogSegment

_PIECE_BYTES: Final = 1 << 20
_NO_SPACE: Final = frozenset({ENOSPC, EDQUOT})


@dataclass(frozen=True, slots=True)
class MeasuredLog:
    """Facts about a log that may be cleaned, at one moment."""

    segments: Sequence[SegmentToClean]
    cleanable: CleanableLog


def measure_log(state: LogState, *, checkpointed_offset: int | None, now_ms: int) -> MeasuredLog:
    """Measure a log; by its writer.

    Raises:
        CorruptRecordError: the first batch of a segment is damaged.
        OSError: the disk is failing.
    """
    has_max_lag = state.config.max_compaction_lag_ms < MAX_LONG  # otherwise no file has to be read
    segments = tuple(
        SegmentToClean(
            base_offset=segment.base_offset,
            size_bytes=segment.size_bytes,
            offset_index_bytes=segment.offset_index.entries * segment.offset_index.entry.size,
            time_index_bytes=segment.time_index.entries * segment.time_index.entry.size,
            largest_timestamp_ms=segment.largest_timestamp_ms,
            first_timestamp_ms=segment.first_timestamp_ms() if has_max_lag else MAX_LONG,
        )
        for segment in state.segments.segments
    )
    log = LogToMeasure(
        segments=segments,
        checkpointed_offset=checkpointed_offset,
        log_start_offset=state.offsets.log_start_offset,
        log_end_offset=state.segments.log_end.offset,
        last_stable_offset=state.offsets.last_stable.offset,
    )
    return MeasuredLog(segments, measure(log, state.config, now_ms=now_ms))


class CleaningRound:
    """One round: the caller calls ``map_keys`` once, then ``rewrite`` and ``replace`` for each of ``groups``.

    Attributes:
        end_offset: the first dirty offset once every group is replaced; known after ``map_keys``.
        bytes_read: of groups that were rewritten.
        bytes_written: of their outputs.
    """

    def __init__(
        self,
        state: LogState,
        measured: MeasuredLog,
        *,
        start: StartRewriting,
        control: CleaningControl,
        now_ms: int,
    ) -> None:
        """Begin; by the log's writer.

        Args:
            state: of the log.
            measured: the facts about the log, from the same call of its writer.
            start: makes the rewriter.
            control: of the round.
            now_ms: wall clock.

        Raises:
            CorruptIndexError: a transaction index is damaged.
            OSError: the disk is failing.
        """
        self._state = state
        self._facts = measured.segments
        self._cleanable = cleanable = measured.cleanable
        self._control = control
        self._now_ms = now_ms
        self._config = state.config
        self._segments = {segment.base_offset: segment for segment in state.segments.segments}
        self._next_bases = dict(zip(list(self._segments), list(self._segments)[1:], strict=False))
        self._names_version = state.segments.published.names_version
        self._rewriter: RoundRewriter = start(
            RoundFacts(
                now_ms=now_ms,
                delete_retention_ms=self._config.delete_retention_ms,
                aborted=tuple(_aborted_in(self._segments.values())),
                producers={entry.producer_id: entry for entry in state.producers.entries},
                first_dirty_offset=cleanable.first_dirty_offset,
                first_uncleanable_offset=cleanable.first_uncleanable_offset,
            )
        )
        self.end_offset = cleanable.first_dirty_offset
        self.bytes_read = 0
        self.bytes_written = 0

    def map_keys(self) -> None:
        """Map the keys of the dirty segments, which determines the end of the round. Takes long.

        Raises:
            CleaningAbortedError: the round was aborted, or the log changed under it.
            LogDirOfflineError: the disk failed.
            LogError: a segment is damaged.
        """
        dirty = [
            fact
            for fact in self._facts
            if fact.base_offset < self._cleanable.first_uncleanable_offset
            and self._next_bases[fact.base_offset] > self._cleanable.first_dirty_offset
        ]
        with self._reading():
            unmapped = self._rewriter.map_keys(self._source(fact) for fact in dirty)
        self.end_offset = self._cleanable.first_uncleanable_offset if unmapped is None else unmapped

    def groups(self) -> list[SegmentGroup]:
        """Return which segments become one, ascending: all that begin below the end of the map."""
        chosen = [fact for fact in self._facts if fact.base_offset < self.end_offset]
        first_uncleanable = self._cleanable.first_uncleanable_offset
        return group_segments(chosen, self._config, first_uncleanable_offset=first_uncleanable)

    def rewrite(self, group: SegmentGroup) -> CleanedSegment:
        """Write the kept records of a group under ``.cleaned`` names, durably; an error leaves no file. Takes long.

        Raises:
            CleaningAbortedError, LogDirOfflineError, LogError: as ``map_keys``.
            CleaningNoSpaceError: the disk is full, which is no fault of the log.
        """
        with self._reading():
            state = self._state
            output = CleanedSegment(
                state.disk,
                state.segments.directory,
                group[0].base_offset,
                config=self._config,
                now_ms=self._now_ms,
            )
            try:
                self._rewriter.rewrite((self._source(fact) for fact in group), output)
                self._control.passed(output.size_bytes)
                output.finish(mtime_ms=self._mtime_ms(group[-1]))
            except BaseException:
                with suppress(OSError):
                    output.discard()
                raise
        self.bytes_read += sum(fact.size_bytes for fact in group)
        self.bytes_written += output.size_bytes
        return output

    def replace(self, group: SegmentGroup, output: CleanedSegment, *, now_ms: int) -> None:
        """Put the output in the place of its group; by the log's writer.

        Raises:
            CleaningAbortedError: the log changed since the round began; the output is gone.
            OSError: the disk is failing; the next load finishes or undoes the replacement.
        """
        state = self._state
        if self._is_stale():
            output.discard()
            raise self._control.aborted()
        old = [self._segments[fact.base_offset] for fact in group]
        removed = state.segments.replace_segments([output.segment], old, now_ms=now_ms)
        state.delete_snapshots(removed, now_ms=now_ms)
        self._names_version = state.segments.published.names_version

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Work beside the writer: an error counts as one of the disk, or of the log, only if the log is unchanged."""
        self._state.offline.raise_if_offline()
        try:
            yield
        except (OSError, LogError) as error:
            if self._is_stale() and not self._state.offline.is_offline:
                raise self._control.aborted() from error
            if isinstance(error, OSError) and error.errno in _NO_SPACE:
                raise self._control.no_space(error) from error
            if isinstance(error, OSError):
                raise self._state.offline.mark(error) from error
            raise

    def _is_stale(self) -> bool:
        state = self._state
        is_changed = state.segments.published.names_version != self._names_version
        return is_changed or state.is_closed or not state.has_handles

    def _mtime_ms(self, fact: SegmentToClean) -> int:
        path = self._segments[fact.base_offset].path
        status = self._state.disk.status(path)
        if status is None:
            raise FileNotFoundError(ENOENT, "renamed or removed", str(path))
        return status.mtime_ms

    def _source(self, fact: SegmentToClean) -> SourceSegment:
        segment = self._segments[fact.base_offset]
        return SourceSegment(
            name=str(segment.path),
            start_offset=fact.base_offset,
            end_offset=self._next_bases[fact.base_offset] - 1,
            pieces=self._pieces(segment, fact.size_bytes),
        )

    def _pieces(self, segment: LogSegment, size_bytes: int) -> Iterator[bytes]:
        with closing(self._state.disk.open(segment.path, write=False)) as source:
            position = 0
            while position < size_bytes:
                data = source.read(position, min(_PIECE_BYTES, size_bytes - position))
                if not data:
                    raise source.changed()
                self._control.passed(len(data))
                position += len(data)
                yield data


def _aborted_in(segments: Iterable[LogSegment]) -> Iterator[AbortedTransaction]:
    for segment in segments:
        if segment.transaction_index.may_exist:
            yield from segment.transaction_index.all()
