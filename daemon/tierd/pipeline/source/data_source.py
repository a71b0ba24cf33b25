"""TieredLogDataSource: what ``format("tierd")`` means."""

import os

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tierd.config import load_config
from tierd.pipeline.access import TierAccess
from tierd.pipeline.source.batch_reader import TierBatchReader
from tierd.pipeline.source.options import ReadOptions, includes_headers, parse_options
from tierd.pipeline.source.remedies import with_remedy
from tierd.pipeline.source.row_schema import row_schema
from tierd.pipeline.source.stream_reader import TierStreamReader


class TieredLogDataSource(DataSource):
    """Reads partitions from the tier, with the options and columns of Spark's own Kafka source."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tierd"

    def schema(self) -> StructType:
        """The columns of a row.

        Raises:
            ReadOptionError: an option is not known.
        """
        with with_remedy():
            return row_schema(has_headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> TierBatchReader:
        """A batch query.

        Raises:
            TierError: an option or the configuration cannot be used.
        """
        with with_remedy():
            options = parse_options(self.options, is_streaming=False)
            return TierBatchReader(_access(options), options, schema)

    def streamReader(self, schema: StructType) -> TierStreamReader:  # noqa: N802 - Spark's name
        """A streaming query.

        Raises:
            TierError: an option or the configuration cannot be used.
        """
        with with_remedy():
            options = parse_options(self.options, is_streaming=True)
            return TierStreamReader(_access(options), options, schema)


def _access(options: ReadOptions) -> TierAccess:
    return TierAccess.from_config(load_config(options.config, os.environ), options.config)
