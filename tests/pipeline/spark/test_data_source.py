"""What only a session can show: registration, filters that Spark pushes, and checkpoints."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.source.queries import as_oracle
from tests.pipeline.source.small_tier import SmallTier
from tierd.pipeline import register


@pytest.fixture
def tier(tmp_path: Path, spark: SparkSession) -> SmallTier:
    register(spark)
    made = SmallTier(tmp_path)
    made.add_segment(40)
    made.add_segment(40)
    return made


def load(spark: SparkSession, tier: SmallTier, **options: str) -> DataFrame:
    config = str(tier.installation.config_file)
    return spark.read.format("tierd").options(config=config, subscribe="orders", **options).load()


def test_spark_reads_what_cat_shows(spark: SparkSession, tier: SmallTier) -> None:
    rows = load(spark, tier, partitionBytes="1kB").collect()
    shown = tier.installation.cat("orders-0")
    named = [{**row.asDict(), "headers": [header.asDict() for header in row["headers"]]} for row in rows]
    wanted = as_oracle(named[0]).keys()
    assert [as_oracle(row) for row in named] == [{key: record[key] for key in wanted} for record in shown]


def test_spark_hands_filters_to_the_source_and_evaluates_the_others(spark: SparkSession, tier: SmallTier) -> None:
    rows = load(spark, tier).where(
        "topic = 'orders' and partition in (0, 1) and offset > 9 and timestamp < timestamp_seconds(60) and key = 'k1'"
    )
    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert [row.offset for row in rows.collect()] == [offset for offset in range(10, 60) if offset % 3 == 1]
    assert "offset" not in plan.split("Filter", 1)[1].split("BatchScan", 1)[0]


def test_an_error_says_what_to_do(spark: SparkSession, tier: SmallTier) -> None:
    with pytest.raises(PySparkException, match="the nearest is startingOffsets") as refused:
        load(spark, tier, startingOffset="earliest")
    assert "the options are subscribe" in str(refused.value)


def test_a_query_with_a_checkpoint_delivers_each_record_once(
    spark: SparkSession, tier: SmallTier, tmp_path: Path
) -> None:
    stream = (
        spark.readStream.format("tierd")
        .option("config", str(tier.installation.config_file))
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "25")
        .load()
    )
    for _ in range(3):
        query = (
            stream.select("offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        tier.add_segment(20)
    found = sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == list(range(120))
