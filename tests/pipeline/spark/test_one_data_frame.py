"""One data frame used by many queries: each query gets the rows that it would get of a plain table."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.fakes.log_dirs import LogDirWriter
from tests.log.logs import NOW_MS
from tests.pipeline.rewriting.compacted_log import CompactedLog
from tests.pipeline.source.queries import Queries
from tests.scenarios.installation import Installation
from tierd.app import Deployment, copy_once
from tierd.config import load_config
from tierd.log import NewRecord, Producer
from tierd.model import uuid_to_text
from tierd.pipeline import register
from tierd.pipeline.source.data_source import TieredLogDataSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ADAPTIVE = "spark.sql.adaptive.enabled"
COLUMNS = "topic string, partition int, offset long, timestamp timestamp, key binary, value binary"
ISOLATIONS = ("read_committed", "read_uncommitted")

TENS = "partition = 0 and offset between 10 and 19"
OTHERS = "partition = 1 and offset < 7"
YOUNG = f"timestamp >= timestamp_millis({NOW_MS + 50_000})"
KEY = "key = '3' or offset in (4, 40)"

Way = Callable[[SparkSession, DataFrame], DataFrame]


def _view(query: str) -> Way:
    def of_view(spark: SparkSession, rows: DataFrame) -> DataFrame:
        rows.createOrReplaceTempView("records")
        return spark.sql(query)

    return of_view


def _cached(spark: SparkSession, rows: DataFrame) -> DataFrame:
    kept = rows.where(TENS).cache()
    kept.count()
    found = spark.createDataFrame(kept.union(rows).collect(), rows.schema)
    kept.unpersist(blocking=True)
    return found


WAYS: dict[str, Way] = {
    "everything": lambda _, rows: rows,
    "a filter": lambda _, rows: rows.where(TENS),
    "another filter": lambda _, rows: rows.where(OTHERS),
    "a filter on the time": lambda _, rows: rows.where(YOUNG),
    "a filter that needs the records": lambda _, rows: rows.where(KEY),
    "a filter that nothing fulfils": lambda _, rows: rows.where("offset < 0"),
    "two filters in a union": lambda _, rows: rows.where(TENS).union(rows.where(OTHERS)),
    "a filter and everything in a union": lambda _, rows: rows.where(TENS).union(rows),
    "everything and a filter in a union": lambda _, rows: rows.union(rows.where(OTHERS)),
    "a self join": lambda _, rows: rows.where(TENS).join(rows.select("offset", "partition"), ["offset"]),
    "a self join of two filters": lambda _, rows: rows.where(TENS).join(
        rows.where("offset > 14").select("offset", "partition"), ["offset"]
    ),
    "an anti join": lambda _, rows: rows.join(rows.where(YOUNG).select("offset"), ["offset"], "left_anti"),
    "groups": lambda _, rows: rows.groupBy("partition").agg({"offset": "max", "*": "count"}),
    "a view": _view("select * from records"),
    "a filtered view": _view(f"select * from records where {OTHERS}"),
    "a scalar subquery": _view(
        "select * from records where offset > (select max(offset) - 20 from records where partition = 1)"
    ),
    "two scalar subqueries": _view(
        "select (select count(*) from records where offset < 5) a, (select count(*) from records where offset < 9) b"
    ),
    "a subquery of a set": _view("select * from records where offset in (select offset from records where offset < 3)"),
    "a common table": _view(
        f"with tens as (select * from records where {TENS}) select * from tens union all select * from records"
    ),
    "a cached part": _cached,
}


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a tier of orders-0 with committed and aborted transactions, and orders-1 without; several segments each."""
    root = tmp_path_factory.mktemp("tier")
    folder = LogDirWriter(root / "kafka")
    plain = folder.add_partition("orders", 1)
    for _ in range(3):
        plain.append([b"%d" % n for n in range(15)])
        plain.roll()
    log = CompactedLog(folder.path)
    for producer_id in range(10):
        records = [NewRecord(b"%d" % n, b"value", NOW_MS + 1000 * (10 * producer_id + n)) for n in range(8)]
        log.send(records, producer=Producer(producer_id, 0, 0), transactional=True)
        if producer_id % 3:
            log.commit(producer_id)
        else:
            log.abort(producer_id)
        if producer_id % 4 == 1:
            log.roll()
    log.roll()
    end = log.log.log_end_offset
    log.log.close()
    (log.directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(plain.topic_id)}")
    checkpoint = f"0\n2\norders 0 {end}\norders 1 {plain.end_offset}\n"
    (folder.path / "replication-offset-checkpoint").write_text(checkpoint)
    return _copied(root, folder.path)


def _copied(root: Path, log_dir: Path) -> Path:
    installation = Installation(root / "tierd", [log_dir])
    outcomes = asyncio.run(
        copy_once(Deployment(load_config(installation.config_file, {}), installation.config_file), None)
    )
    assert all(outcome.error is None for outcome in outcomes), outcomes
    return installation.config_file


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def load(spark: SparkSession, config_file: Path, isolation: str) -> DataFrame:
    options = {"config": str(config_file), "subscribe": "orders", "isolation": isolation}
    return spark.read.format("tierd").options(**options).schema(COLUMNS).load()


def plain_table(spark: SparkSession, config_file: Path, isolation: str) -> DataFrame:
    """Return the rows that the classes of the source give without Spark, as a table of the driver."""
    rows = Queries(config_file, subscribe="orders", isolation=isolation).rows(COLUMNS)
    return spark.createDataFrame([tuple(row.values()) for row in rows], COLUMNS)


def answers(rows: DataFrame) -> list[str]:
    return sorted(map(str, rows.collect()))


@pytest.fixture(scope="module", params=ISOLATIONS)
def isolation(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def expected(spark: SparkSession, config_file: Path, isolation: str) -> dict[str, list[str]]:
    """Return the answer of each way of use over the plain table."""
    table = plain_table(spark, config_file, isolation)
    assert table.count() == {"read_committed": 45 + 48, "read_uncommitted": 45 + 80}[isolation]
    return {name: answers(way(spark, table)) for name, way in WAYS.items()}


@pytest.mark.parametrize(
    ("registered_by", "pushdown", "adaptive"), [("tierd", "false", "true"), ("the user", "true", "false")]
)
def test_data_frame_in_any_query_gives_the_rows_of_a_plain_table(  # noqa: PLR0917 - fixtures
    spark: SparkSession,
    config_file: Path,
    isolation: str,
    expected: dict[str, list[str]],
    registered_by: str,
    pushdown: str,
    adaptive: str,
) -> None:
    with setting(spark, ADAPTIVE, adaptive), setting(spark, PUSHDOWN, pushdown):
        if registered_by == "tierd":
            register(spark)
        else:
            spark.dataSource.register(TieredLogDataSource)
        rows = load(spark, config_file, isolation)
        order = random.Random(f"{isolation} {registered_by} {pushdown}").sample(sorted(WAYS), len(WAYS))
        wrong = [name for name in order if answers(WAYS[name](spark, rows)) != expected[name]]
        assert not wrong, f"of {order}"
        assert answers(rows) == expected["everything"]


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_stream_joined_with_a_data_frame_that_other_queries_filter_gets_all_rows_of_the_data_frame(
    spark: SparkSession, config_file: Path, tmp_path: Path, pushdown: str
) -> None:
    register(spark)
    with setting(spark, PUSHDOWN, pushdown):
        rows = load(spark, config_file, "read_committed")
        tens = rows.where(TENS)
        assert tens.count() == len({row.offset for row in tens.collect()}) > 0
        options = {"config": str(config_file), "subscribe": "orders", "startingOffsets": "earliest"}
        stream = spark.readStream.format("tierd").options(**options).schema(COLUMNS).load().where("partition = 0")
        for name, static in (("all", rows), ("tens", tens), ("all_again", rows)):
            joined = stream.select("offset", "partition").join(
                static.select("offset", "partition"), ["offset", "partition"]
            )
            writing = joined.writeStream.format("memory").queryName(name).trigger(availableNow=True)
            query = writing.option("checkpointLocation", str(tmp_path / name)).start()
            query.awaitTermination()
            assert spark.table(name).count() == static.where("partition = 0").count(), name
        assert rows.count() == 45 + 48
