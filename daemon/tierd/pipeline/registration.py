"""``register``, which makes the data source known to a Spark session."""

from typing import TYPE_CHECKING

from tierd.errors import PipelineError, install_extra

if TYPE_CHECKING:  # the daemon runs without
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make ``spark.read.format("tierd")`` and ``spark.readStream.format("tierd")`` known.

    Filters are pushed down where Spark makes a reader for each scan, which Spark 4.3.0 does not do (decision 22). The
    setting ``spark.sql.python.filterPushdown.enabled`` is switched on only there. Executors need tierd too, with the
    extra ``spark``.

    Raises:
        PipelineError: a package is not installed.
    """
    try:
        from tierd.pipeline import source  # noqa: PLC0415 - only here Spark is needed
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "tierd":
            raise
        raise PipelineError(
            f"the data source needs the Python package {error.name}, which is not installed",
            remedy=f"{install_extra('spark')}, for the driver and for every executor",
        ) from error
    if source.makes_a_reader_for_each_scan(spark):
        spark.conf.set(source.FILTER_PUSHDOWN, "true")
        spark.dataSource.register(source.FilteringTieredLogDataSource)
    else:
        spark.dataSource.register(source.TieredLogDataSource)
