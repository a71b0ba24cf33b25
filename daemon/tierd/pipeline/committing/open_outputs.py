"""OpenOutputs: the outputs that a run has begun, and the ids that expiration and sweep leave alone meanwhile."""

from collections.abc import Callable, Iterable, MutableSet
from dataclasses import dataclass
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierd.pipeline.committing.round import PartitionRound
from tierd.pipeline.planning import Output

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OpenOutput:
    """Output that was begun and has not come to its end."""

    output: Output
    round: PartitionRound

    @property
    def row(self) -> RemoteLogSegmentMetadata:
        """Return the row of the output as it was begun."""
        return self.output.metadata

    @property
    def inputs(self) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Return the segments that the output is to replace."""
        return self.round.work.group_inputs(self.output.group)


class OpenOutputs:
    """Open outputs of the present run; one object serves one run after the other.

    Args:
        metadata: where outputs are abandoned.
        being_copied: ids that expiration and sweep leave alone; shared with them, and changed here.
        clock: wall clock of the rows.
        abandoned: called with every output that is abandoned.
    """

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        *,
        being_copied: MutableSet[UUID],
        clock: Clock,
        abandoned: Callable[[RemoteLogSegmentMetadata], None],
    ) -> None:
        self._metadata = metadata
        self._being_copied = being_copied
        self._clock = clock
        self._abandoned = abandoned
        self._open: dict[UUID, OpenOutput] = {}
        self._guarded: set[UUID] = set()

    def __len__(self) -> int:
        return len(self._open)

    def guard(self, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Keep expiration and sweep from segments, until the segments are released."""
        ids = {metadata.segment.id for metadata in segments} - self._being_copied
        self._guarded |= ids
        self._being_copied |= ids

    def release(self, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Give segments back to expiration and sweep."""
        ids = {metadata.segment.id for metadata in segments} & self._guarded
        self._guarded -= ids
        self._being_copied -= ids

    def add(self, opened: OpenOutput) -> None:
        """Take care of an output, before its row is written."""
        self._open[opened.row.segment.id] = opened
        self.guard([opened.row])

    def get(self, segment_id: UUID) -> OpenOutput | None:
        """Return the open output of that id."""
        return self._open.get(segment_id)

    def of_group(self, round_: PartitionRound, group: int) -> OpenOutput | None:
        """Return the open output of that group."""
        return next((e for e in self._open.values() if e.round is round_ and e.output.group == group), None)

    def forget(self, opened: OpenOutput) -> None:
        """Release an output and its inputs: the output has come to its end, or is left to the sweep."""
        self._open.pop(opened.row.segment.id, None)
        self.release([opened.row, *opened.inputs])

    async def abandon(self, opened: OpenOutput) -> None:
        """Abandon an output: its row turns DELETE_SEGMENT_STARTED, so that the sweep removes its objects.

        If the row cannot be written, the sweep removes the objects after its grace. ``abandoned`` is called, since a
        task of the job may still write objects of the output, which are to be searched for later.
        """
        self.forget(opened)
        self._abandoned(opened.row)
        try:
            present = self._metadata.view(opened.row.segment.topic_id_partition).segment(opened.row.segment.id)
            if present is None or present.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
                return  # a cancelled commit went through: what is finished holds the only records by now
            step = present.advance(
                RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
                event_timestamp_ms=self._clock.now_ms(),
                broker_id=present.broker_id,
            )
            await self._metadata.update(step)
        except TierError as error:
            log.info("output_left_to_sweep", segment=str(opened.row.segment), problem=str(error))

    async def close(self) -> None:
        """Abandon the open outputs and release everything. A cancelled call leaves the rest to the sweep."""
        opened = tuple(self._open.values())
        for each in opened:
            self.forget(each)
        self._being_copied -= self._guarded
        self._guarded.clear()
        for each in opened:
            await self.abandon(each)
