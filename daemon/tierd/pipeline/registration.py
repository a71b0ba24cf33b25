"""``register``: the data source made known to a Spark session."""

from typing import TYPE_CHECKING

from tierd.errors import PipelineError

if TYPE_CHECKING:  # the daemon runs without
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make ``spark.read.format("tierd")`` and ``spark.readStream.format("tierd")`` known, with filters pushed down.

    Executors need tierd too, with the extra ``spark``.

    Raises:
        PipelineError: a package is not installed.
    """
    try:
        from tierd.pipeline.source import TieredLogDataSource  # noqa: PLC0415 - only here Spark is needed
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "tierd":
            raise
        raise PipelineError(
            f"the data source needs the Python package {error.name}, which is not installed",
            remedy="pip install 'tierd[spark]', on the driver and on every executor",
        ) from error
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(TieredLogDataSource)
