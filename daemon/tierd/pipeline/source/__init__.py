"""Data source of Spark over the tier, for batch and streaming queries. Planned once, read by many tasks."""

from tierd.pipeline.source.data_source import FilteringTieredLogDataSource, TieredLogDataSource
from tierd.pipeline.source.reader_probe import FILTER_PUSHDOWN, makes_a_reader_for_each_scan

__all__ = ["FILTER_PUSHDOWN", "FilteringTieredLogDataSource", "TieredLogDataSource", "makes_a_reader_for_each_scan"]
