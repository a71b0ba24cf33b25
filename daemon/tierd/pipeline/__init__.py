"""What Spark does with the tier: a data source over it, and the job that compacts, merges, erases and audits.

Nothing is imported of pyspark before it is needed: the daemon plans, commits and schedules without it.
"""

from tierd.pipeline.committing import CompactionLeader, LeaderSettings, PreparedRun
from tierd.pipeline.planning import Candidate, CleaningPolicy, Skipped
from tierd.pipeline.registration import register
from tierd.pipeline.running import (
    PartitionLeases,
    PipelineScheduler,
    RunHistory,
    RunLimits,
    RunOutcome,
    RunProgress,
    RunReport,
    SparkProcess,
    SparkRun,
    find_spark,
    sweep_runs,
)

__all__ = [
    "Candidate",
    "CleaningPolicy",
    "CompactionLeader",
    "LeaderSettings",
    "PartitionLeases",
    "PipelineScheduler",
    "PreparedRun",
    "RunHistory",
    "RunLimits",
    "RunOutcome",
    "RunProgress",
    "RunReport",
    "Skipped",
    "SparkProcess",
    "SparkRun",
    "find_spark",
    "register",
    "sweep_runs",
]
