"""What Spark does with the tier: a data source over it, and the job that compacts, merges, erases and audits.

Nothing is imported of pyspark before it is needed: the daemon plans, commits and schedules without it.
"""

from tierd.pipeline.registration import register

__all__ = ["register"]
