"""The data source: what Spark reads of the tier, in batch and streaming queries. Planned once, read by many tasks."""

from tierd.pipeline.source.data_source import TieredLogDataSource

__all__ = ["TieredLogDataSource"]
