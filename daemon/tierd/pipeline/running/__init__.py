"""Schedule, leases, process, limits and history of the runs. No pyspark here."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.pipeline.running.leasing import PartitionLeases
    from tierd.pipeline.running.requirements import find_spark
    from tierd.pipeline.running.run_history import RunHistory, RunReport, report_json
    from tierd.pipeline.running.run_progress import RunProgress
    from tierd.pipeline.running.scheduler import PipelineScheduler, RunLimits
    from tierd.pipeline.running.spark_process import SparkProcess
    from tierd.pipeline.running.spark_run import SparkRun, SparkRunSettings, sweep_runs
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "PartitionLeases",
    "PipelineScheduler",
    "RunHistory",
    "RunLimits",
    "RunProgress",
    "RunReport",
    "SparkProcess",
    "SparkRun",
    "SparkRunSettings",
    "find_spark",
    "report_json",
    "sweep_runs",
]
