"""Data source in a real session: registration, filters that a sound Spark may push, and checkpoints."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.source.queries import as_oracle
from tests.pipeline.source.small_tier import SmallTier
from tierd.pipeline import register, source
from tierd.pipeline.source import reader_probe
from tierd.pipeline.source.reader_probe import (
    FILTER_PUSHDOWN,
    FilteredNumbers,
    NumbersSource,
    answers_right,
    makes_a_reader_for_each_scan,
)


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


def test_query_in_spark_returns_the_records_of_cat(spark: SparkSession, tier: SmallTier) -> None:
    rows = load(spark, tier, partitionBytes="1kB").collect()
    shown = tier.installation.cat("orders-0")
    named = [{**row.asDict(), "headers": [header.asDict() for header in row["headers"]]} for row in rows]
    wanted = as_oracle(named[0]).keys()
    assert [as_oracle(row) for row in named] == [{key: record[key] for key in wanted} for record in shown]


@pytest.fixture
def pushes_filters(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the session appear as that of a Spark that makes a reader for each scan."""
    monkeypatch.setattr(source, "makes_a_reader_for_each_scan", lambda _: True)
    register(spark)
    yield
    spark.conf.unset(FILTER_PUSHDOWN)


@pytest.mark.usefixtures("pushes_filters")
def test_spark_pushes_exact_filters_to_the_source_and_evaluates_the_others(
    spark: SparkSession, tier: SmallTier
) -> None:
    register(spark)
    rows = load(spark, tier).where(
        "topic = 'orders' and partition in (0, 1) and offset > 9 and timestamp < timestamp_seconds(60) and key = 'k1'"
    )
    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert [row.offset for row in rows.collect()] == [offset for offset in range(10, 60) if offset % 3 == 1]
    assert "offset" not in plan.split("Filter", 1)[1].split("BatchScan", 1)[0]


def test_registration_does_not_change_the_setting_if_spark_makes_a_reader_for_each_scan(spark: SparkSession) -> None:
    assert not makes_a_reader_for_each_scan(spark), "this Spark is sound: the pages may promise that filters are pushed"
    before = spark.conf.get(FILTER_PUSHDOWN, None)
    register(spark)
    assert spark.conf.get(FILTER_PUSHDOWN, None) == before != "true"


def test_probe_detects_shared_readers_and_restores_the_setting(spark: SparkSession) -> None:
    assert answers_right(spark, FilteredNumbers) == makes_a_reader_for_each_scan(spark)
    assert answers_right(spark, NumbersSource), "a source that takes no filters is never wrong"
    assert spark.conf.get(FILTER_PUSHDOWN, None) is None


def test_newer_versions_of_spark_are_probed_and_older_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    class Session:
        def __init__(self, version: str) -> None:
            self.version = version

    def answers(spark: Session, _: object) -> bool:
        asked.append(spark.version)
        return True

    monkeypatch.setattr(reader_probe, "answers_right", answers)
    versions = ["4.0.1", "4.2.0.dev5", "4.3.0", "4.3.1", "4.10.0-SNAPSHOT", "5.0.0-preview1", "unknown"]
    found = [makes_a_reader_for_each_scan(Session(version)) for version in versions]  # type: ignore[arg-type]
    assert found == [False, False, False, True, True, True, False]
    assert asked == versions[3:6]


def test_data_frame_keeps_the_segments_of_its_first_query(spark: SparkSession, tier: SmallTier) -> None:
    rows = load(spark, tier)
    assert rows.count() == 80
    tier.add_segment(5)
    assert rows.count() == rows.where("offset >= 0").count() == 80
    assert load(spark, tier).count() == 85


def test_error_of_a_query_names_the_remedy(spark: SparkSession, tier: SmallTier) -> None:
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
