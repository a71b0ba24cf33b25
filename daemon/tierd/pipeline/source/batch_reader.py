"""TierBatchReader: one batch query, planned on the driver and read by tasks."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tierd.pipeline.access import OpenTier, TierAccess
from tierd.pipeline.source.bounds import RecordBounds, push
from tierd.pipeline.source.options import ReadOptions
from tierd.pipeline.source.query import QueryPlanner
from tierd.pipeline.source.reading import read_split
from tierd.pipeline.source.remedies import with_remedy
from tierd.pipeline.source.row_schema import arrow_schema
from tierd.pipeline.source.splits import Split


class TierPartition(InputPartition):
    """What Spark hands to a task; one without a split has nothing to read."""

    def __init__(self, split: Split | None) -> None:
        super().__init__(split)
        self.split = split


class TierBatchReader(DataSourceReader):
    """Reads a snapshot that is pinned when the query is planned. Picklable: it travels to the tasks."""

    def __init__(self, access: TierAccess, options: ReadOptions, schema: StructType) -> None:
        self.access = access
        self._options = options
        self.columns = arrow_schema(schema)
        self.bounds = RecordBounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take over what filters say of offset, timestamp, topic and partition; give back the others."""
        self.bounds, left = push(self.bounds, filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        """Look at the tier and cut what is wanted of it into tasks; what is there later is not read.

        Raises:
            TierError: a store or a log dir cannot be read, or what the query asks for is not there.
        """
        with with_remedy(), self.access.open() as tier:
            return [TierPartition(split) for split in self.plan(tier)] or [TierPartition(None)]

    def plan(self, tier: OpenTier) -> list[Split]:
        """What each task reads.

        Raises:
            TierError: as ``partitions``.
        """
        planner = QueryPlanner(self.access, tier, self._options)
        snapshots = planner.look(self.bounds.wants)
        starts = planner.offsets_at(self._options.starting, snapshots)
        ends = planner.offsets_at(self._options.ending, snapshots)
        return planner.splits(snapshots, starts, ends, self.bounds)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task.

        Raises:
            TierError: as ``read_split``.
        """
        return read_task(self.access, partition, self.bounds, self.columns)


def read_task(
    access: TierAccess, partition: InputPartition, bounds: RecordBounds, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, wherever it runs.

    Raises:
        TierError: as ``read_split``.
    """
    split = partition.split if isinstance(partition, TierPartition) else None
    if split is not None:
        with with_remedy(), access.open() as tier:
            yield from read_split(tier, split, bounds, schema)
