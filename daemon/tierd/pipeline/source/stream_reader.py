"""TierStreamReader: moves a streaming query through the tier, micro-batch by micro-batch."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import structlog
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tierd.errors import with_remedy
from tierd.model import TopicIdPartition, TopicPartition, uuid_to_text
from tierd.pipeline.access import TierAccess
from tierd.pipeline.pipeline_errors import DataLossError
from tierd.pipeline.source.admission import Admission, admitted
from tierd.pipeline.source.batch_reader import TierPartition, read_task
from tierd.pipeline.source.bounds import RecordBounds
from tierd.pipeline.source.partition_snapshot import PartitionSnapshot
from tierd.pipeline.source.positions import StreamPosition, StreamProgress, decode_position, encode_position
from tierd.pipeline.source.query import QueryPlanner
from tierd.pipeline.source.read_options import ReadOptions
from tierd.pipeline.source.row_schema import arrow_schema

log = structlog.get_logger()

PartitionSnapshots = Mapping[TopicPartition, PartitionSnapshot]


class TierStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of one streaming query, whose progress, a ``StreamPosition``, is in Spark's checkpoint alone.

    The reader is pickled to the tasks, which only ``read``, without the password of the metadata store.
    """

    def __init__(self, access: TierAccess, options: ReadOptions, schema: StructType) -> None:
        self._access = access
        self._options = options
        self._schema = arrow_schema(schema)
        self._open: contextlib.ExitStack | None = None
        self._planner: QueryPlanner | None = None
        self._target: Mapping[TopicIdPartition, int] | None = None  # of a query that ends when it has everything

    def initialOffset(self) -> StreamProgress:  # noqa: N802 - Spark's name
        """Return the begin of a query without a checkpoint.

        Raises:
            TierError: a store or a log dir cannot be read, or a partition or offset of the query is not there.
        """
        with with_remedy():
            planner = self._require_planner()
            snapshots = planner.take_snapshots()
            return _encoded(planner.offsets_at(self._options.starting, snapshots), snapshots)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of offsets, else of bytes; Spark takes one limit, ``latestOffset`` adds the other one."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take the present ends of the partitions as the end of the query.

        Raises:
            TierError: as ``initialOffset``.
        """
        with with_remedy():
            snapshots = self._require_planner().take_snapshots()
            self._target = {snapshot.partition: snapshot.end_offset for snapshot in snapshots.values()}

    def latestOffset(self, start: StreamProgress, limit: ReadLimit) -> StreamProgress:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch: all that is there, or as much of it as ``limit`` admits.

        For a partition that ``start`` does not have, the end is the begin of the partition. The checkpoint then has the
        begin before the first record is read, and a later micro-batch fails if retention has removed records since.

        Raises:
            DataLossError: offsets that come next are not there, and the query is to fail then.
            TierError: as ``initialOffset``.
        """
        with with_remedy():
            planner = self._require_planner()
            snapshots = planner.take_snapshots()
            progress = decode_position(start)
            known = self._known(progress, snapshots)
            starts = {**_begins(snapshots), **known}
            ends = self._ends(starts, {name: snapshot for name, snapshot in snapshots.items() if name in known})
            admission = self._admission(limit)
            if not admission.is_unlimited:
                spans = {name: planner.span(snapshots[name], starts[name], ends[name]) for name in snapshots}
                ends = admitted(spans, starts, admission)
            return encode_position(StreamPosition(ends, {**progress.topic_ids, **_topic_ids(snapshots)}))

    def reportLatestOffset(self) -> StreamProgress | None:  # noqa: N802 - Spark's name
        """Return the present end of each partition, for the query's status.

        Raises:
            TierError: as ``initialOffset``.
        """
        with with_remedy():
            snapshots = self._require_planner().take_snapshots()
            return _encoded({name: snapshot.end_offset for name, snapshot in snapshots.items()}, snapshots)

    def partitions(self, start: StreamProgress, end: StreamProgress) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch; none where nothing is new.

        Raises:
            DataLossError: offsets of the batch are not there, and the query is to fail then.
            TierError: as ``initialOffset``.
        """
        with with_remedy():
            planner = self._require_planner()
            snapshots = planner.take_snapshots()
            starts = {**_begins(snapshots), **self._known(decode_position(start), snapshots)}
            ends = self._present_ends(decode_position(end), starts, snapshots)
            moved = {name: offset for name, offset in ends.items() if offset > starts[name]}
            return [TierPartition(split) for split in planner.splits(snapshots, starts, moved, RecordBounds())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task.

        Raises:
            TierError: as ``read_split``.
        """
        return read_task(self._access, partition, RecordBounds(), self._schema)

    def commit(self, end: StreamProgress) -> None:
        """Do nothing: the tier keeps no positions of its readers."""

    def stop(self) -> None:
        """Close the opened tier, and drop the planner."""
        opened, self._open, self._planner = self._open, None, None
        if opened is not None:
            opened.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_access": self._access.for_tasks(), "_open": None, "_planner": None}

    def _require_planner(self) -> QueryPlanner:
        if self._planner is None:
            with contextlib.ExitStack() as stack:
                tier = stack.enter_context(self._access.open())
                self._planner = QueryPlanner(self._access, tier, self._options)
                self._open = stack.pop_all()
        return self._planner

    def _known(self, progress: StreamPosition, snapshots: PartitionSnapshots) -> dict[TopicPartition, int]:
        """Return the next offset of each partition that the query knows; a topic that was made anew is not known.

        Raises:
            DataLossError: a partition is gone, or its topic was made anew, and the query is to fail then.
        """
        present = _topic_ids(snapshots)
        anew = {topic for topic, topic_id in progress.topic_ids.items() if present.get(topic, topic_id) != topic_id}
        if anew:
            self._lose("topics_made_anew", anew, "the query has read of an earlier topic of that name")
        known = {name: offset for name, offset in progress.offsets.items() if name.topic not in anew}
        if gone := set(known) - set(snapshots):
            self._lose("partitions_gone", gone, "the query has read of it, and the tier does not know it any more")
        return known

    def _present_ends(
        self, ends: StreamPosition, starts: Mapping[TopicPartition, int], snapshots: PartitionSnapshots
    ) -> dict[TopicPartition, int]:
        """Return the ends of a micro-batch in the partitions that are there as they were when the ends were chosen.

        Raises:
            DataLossError: another partition has offsets of the batch, and the query is to fail then.
        """
        present = _topic_ids(snapshots)
        there = {
            name: offset
            for name, offset in ends.offsets.items()
            if name in snapshots and ends.topic_ids.get(name.topic, present[name.topic]) == present[name.topic]
        }
        if lost := {n for n, offset in ends.offsets.items() if n not in there and offset > starts.get(n, 0)}:
            self._lose("partitions_gone", lost, "the micro-batch has offsets of it, and it is gone or was made anew")
        return there

    def _lose(self, event: str, names: Iterable[str | TopicPartition], why: str) -> None:
        problem = f"{', '.join(sorted(map(str, names)))}: {why}"
        if self._options.fail_on_data_loss:
            raise DataLossError(problem, remedy="begin with another checkpoint, or set failOnDataLoss=false")
        log.warning(event, problem=problem)

    def _ends(self, starts: Mapping[TopicPartition, int], snapshots: PartitionSnapshots) -> dict[TopicPartition, int]:
        """Return the present ends, at or above ``starts``; a query that ends with what is there stops at its target.

        Raises:
            DataLossError: a log ends below its start of the batch, and the query is to fail then.
        """
        ends = dict(starts)
        for name, snapshot in snapshots.items():
            end = snapshot.end_offset
            if end < starts[name] and snapshot.known_end_offset < starts[name] and self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{name} ends at {snapshot.known_end_offset}, and the query has read up to {starts[name]}",
                    remedy="it was made anew or restored to an earlier state: begin with another checkpoint",
                )
            if self._target is not None:
                end = min(end, self._target.get(snapshot.partition, starts[name]))
            ends[name] = max(end, starts[name])
        return ends

    def _admission(self, limit: ReadLimit) -> Admission:
        if isinstance(limit, ReadAllAvailable):
            return Admission()
        options = self._options
        max_offsets = limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_offsets_per_trigger
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.max_bytes_per_trigger
        return Admission(max_offsets, max_bytes)


def _encoded(offsets: Mapping[TopicPartition, int], snapshots: PartitionSnapshots) -> StreamProgress:
    return encode_position(StreamPosition(offsets, _topic_ids(snapshots)))


def _begins(snapshots: PartitionSnapshots) -> dict[TopicPartition, int]:
    return {name: snapshot.start_offset for name, snapshot in snapshots.items()}


def _topic_ids(snapshots: PartitionSnapshots) -> dict[str, str]:
    return {name.topic: uuid_to_text(each.partition.topic_id) for name, each in snapshots.items()}
