"""Spark on the tier: a data source over it, and the job that compacts, merges, erases and audits.

Nothing is imported of pyspark before it is needed: the daemon plans, commits and schedules without it.
"""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.pipeline.cleaning import own_log_rewriting
    from tierd.pipeline.committing import (
        CompactionLeader,
        LeaderSettings,
        OpenOutputs,
        PartitionRound,
        PreparedRun,
        RunStatistics,
        one_off_secret,
    )
    from tierd.pipeline.erasing import (
        EraseRequest,
        EraseRequests,
        ErasureKeeper,
        ErasureReports,
        KeeperParts,
        LeftSegment,
        OldVersions,
        new_request,
        restore_requests,
        search_work,
    )
    from tierd.pipeline.planning import Candidate, CleaningPolicy
    from tierd.pipeline.registration import register
    from tierd.pipeline.running import (
        PartitionLeases,
        PipelineScheduler,
        RunHistory,
        RunLimits,
        RunProgress,
        RunReport,
        SparkProcess,
        SparkRun,
        SparkRunSettings,
        find_spark,
        report_json,
        sweep_runs,
    )
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "Candidate",
    "CleaningPolicy",
    "CompactionLeader",
    "EraseRequest",
    "EraseRequests",
    "ErasureKeeper",
    "ErasureReports",
    "KeeperParts",
    "LeaderSettings",
    "LeftSegment",
    "OldVersions",
    "OpenOutputs",
    "PartitionLeases",
    "PartitionRound",
    "PipelineScheduler",
    "PreparedRun",
    "RunHistory",
    "RunLimits",
    "RunProgress",
    "RunReport",
    "RunStatistics",
    "SparkProcess",
    "SparkRun",
    "SparkRunSettings",
    "find_spark",
    "new_request",
    "one_off_secret",
    "own_log_rewriting",
    "register",
    "report_json",
    "restore_requests",
    "search_work",
    "sweep_runs",
]
