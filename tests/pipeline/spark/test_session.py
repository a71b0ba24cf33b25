import sys

from pyspark.sql import SparkSession


def test_workers_of_a_session_run_this_python(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]
