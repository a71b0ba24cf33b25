"""TierBatchReader: reads one batch query, which is planned on the driver and read by tasks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tierd.errors import with_remedy
from tierd.pipeline.access import OpenTier, TierAccess
from tierd.pipeline.source.bounds import RecordBounds, push
from tierd.pipeline.source.query import QueryPlanner, configured_access
from tierd.pipeline.source.read_options import ReadOptions
from tierd.pipeline.source.row_schema import arrow_schema
from tierd.pipeline.source.split_reading import read_split
from tierd.pipeline.source.splits import Split
from tierd.process_memory import ModuleFreeze

_MODULES: Final = ModuleFreeze()  # of this process, in which Spark collects garbage after each task


class TierPartition(InputPartition):
    """Partition that Spark hands to a task; one without a split has nothing to read."""

    def __init__(self, split: Split | None) -> None:
        super().__init__(split)
        self.split = split


class TierBatchReader(DataSourceReader):
    """Reader of a snapshot that is pinned when the query is planned.

    The reader is pickled to the tasks, without the password of the metadata store.

    The reader takes no filters: a Spark that gives one reader to several queries would apply one's filters to all.
    """

    def __init__(self, access: TierAccess, options: ReadOptions, schema: StructType) -> None:
        self.access = access
        self._options = options
        self.columns = arrow_schema(schema)
        self.bounds = RecordBounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks of the query from the present state of the tier; later records are not read.

        Raises:
            TierError: a store or a log dir cannot be read, or a partition or offset of the query is not there.
        """
        with with_remedy():
            if self.access.metadata is None:  # Spark pickles a reader with pushed filters, which then plans
                self.access = configured_access(self._options)
            with self.access.open() as tier:
                return [TierPartition(split) for split in self.plan(tier)] or [TierPartition(None)]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "access": self.access.for_tasks()}

    def plan(self, tier: OpenTier) -> list[Split]:
        """Return the split of each task.

        Raises:
            TierError: as ``partitions``.
        """
        planner = QueryPlanner(self.access, tier, self._options)
        snapshots = planner.take_snapshots(self.bounds.wants)
        starts = planner.offsets_at(self._options.starting, snapshots)
        ends = planner.offsets_at(self._options.ending, snapshots, is_end=True)
        return planner.splits(snapshots, starts, ends, self.bounds)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task.

        Raises:
            TierError: as ``read_split``.
        """
        return read_task(self.access, partition, self.bounds, self.columns)


class FilteringTierReader(TierBatchReader):
    """Reader that takes filters over, for a Spark of which ``makes_a_reader_for_each_scan`` is true."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take over filters on offset, timestamp, topic and partition; return those that Spark still has to apply."""
        self.bounds, left = push(self.bounds, filters)
        return left


def read_task(
    access: TierAccess, partition: InputPartition, bounds: RecordBounds, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, wherever it runs.

    A worker of Spark also takes the objects of its modules out of the collection of garbage with which Spark ends each
    task: the collection took longer than the decoding of 64 MiB.

    Raises:
        TierError: as ``read_split``.
    """
    split = partition.split if isinstance(partition, TierPartition) else None
    if split is None:
        return
    with with_remedy(), access.open() as tier:
        yield from read_split(tier, split, bounds, schema)
    if TaskContext.get() is not None:
        _MODULES.freeze_new()
