"""TieredLogDataSource: the data source of ``format("tierd")``."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tierd.errors import with_remedy
from tierd.pipeline.source.batch_reader import FilteringTierReader, TierBatchReader
from tierd.pipeline.source.query import configured_access
from tierd.pipeline.source.read_options import includes_headers, parse_options
from tierd.pipeline.source.row_schema import row_schema
from tierd.pipeline.source.stream_reader import TierStreamReader


class TieredLogDataSource(DataSource):
    """Partitions of the tier, with the options and columns of Spark's own Kafka source; takes no filters."""

    _reads_with: type[TierBatchReader] = TierBatchReader

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tierd"

    def schema(self) -> StructType:
        """Return the columns of a row.

        Raises:
            ReadOptionError: an option is not known, or ``includeHeaders`` has no usable value.
        """
        with with_remedy():
            return row_schema(has_headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> TierBatchReader:
        """Return the reader of a batch query.

        Raises:
            TierError: an option or the configuration cannot be used.
        """
        with with_remedy():
            options = parse_options(self.options, is_streaming=False)
            return self._reads_with(configured_access(options), options, schema)

    def streamReader(self, schema: StructType) -> TierStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query.

        Raises:
            TierError: an option or the configuration cannot be used.
        """
        with with_remedy():
            options = parse_options(self.options, is_streaming=True)
            return TierStreamReader(configured_access(options), options, schema)


class FilteringTieredLogDataSource(TieredLogDataSource):
    """Data source that takes filters over, for a Spark that makes a reader for each scan."""

    _reads_with = FilteringTierReader
