"""What the daemon says about itself: every metric declared once, and the log with its secrets masked."""

from tierd.telemetry.declaration import Declaration
from tierd.telemetry.logs import configure_logging
from tierd.telemetry.metrics import Metrics
from tierd.telemetry.scraped import HoldUsage, Latency, MetadataCounts, PartitionLag

__all__ = [
    "Declaration",
    "HoldUsage",
    "Latency",
    "MetadataCounts",
    "Metrics",
    "PartitionLag",
    "configure_logging",
]
