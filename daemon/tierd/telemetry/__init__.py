"""Metrics and log of the daemon: every metric declared once, and the log with its secrets masked."""

from tierd.telemetry.log_cleaner_metrics import LogCleanerUse
from tierd.telemetry.logs import configure_logging
from tierd.telemetry.metrics import Metrics
from tierd.telemetry.own_log_metrics import OwnLogUse
from tierd.telemetry.pipeline_metrics import PipelineUse
from tierd.telemetry.reading_metrics import CacheUse, ReadingUse
from tierd.telemetry.scraped import EngineUse, HoldUsage, Latency, LeadershipUse, MetadataCounts, PartitionLag

__all__ = [
    "CacheUse",
    "EngineUse",
    "HoldUsage",
    "Latency",
    "LeadershipUse",
    "LogCleanerUse",
    "MetadataCounts",
    "Metrics",
    "OwnLogUse",
    "PartitionLag",
    "PipelineUse",
    "ReadingUse",
    "configure_logging",
]
