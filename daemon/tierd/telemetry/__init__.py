"""Metrics and log of the daemon: every metric declared once, and the log with its secrets masked."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.telemetry.catalogue_metrics import CatalogueUse
    from tierd.telemetry.control_metrics import ControlUse
    from tierd.telemetry.drill_metrics import DrillUse
    from tierd.telemetry.endpoint_metrics import EndpointListenerUse, EndpointSessionUse, EndpointUse
    from tierd.telemetry.host_metrics import DiskUse, HostUse
    from tierd.telemetry.logs import configure_logging
    from tierd.telemetry.metrics import Metrics, render_store_restore
    from tierd.telemetry.metrics_file import MetricsFile
    from tierd.telemetry.own_log_metrics import LogCleanerUse, OwnLogUse
    from tierd.telemetry.pipeline_metrics import PipelineUse
    from tierd.telemetry.push_metrics import (
        HistogramUse,
        PushCopyUse,
        PushLeaderUse,
        PushPeerUse,
        PushStandbyUse,
        PushUse,
        StandbyLagUse,
        UnprotectedUse,
    )
    from tierd.telemetry.reading_metrics import CacheUse, ReadingUse
    from tierd.telemetry.scraped import EngineUse, HoldUsage, Latency, LeadershipUse, MetadataCounts, PartitionLag
    from tierd.telemetry.store_restore_metrics import ChangelogRestoreUse, StoreRestoreUse
else:
    __getattr__ = exports_on_demand(__name__)
