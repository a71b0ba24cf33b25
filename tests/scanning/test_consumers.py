"""pandas, polars and DuckDB read a scan as it is."""

from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

from tests.scanning.rows import offsets_of
from tierd.errors import TierError
from tierd.scanning.arrow_reader import ArrowReader

TIMES = 'CAST("timestamp" AS TIMESTAMP)'


def test_pandas_gets_a_frame(tier: ArrowReader) -> None:
    frame = tier.scan("orders", columns=["partition", "offset", "value", "timestamp", "topic"]).to_table().to_pandas()
    assert frame.groupby("partition").size().to_dict() == {0: 47, 1: 20}
    assert frame["value"].iloc[3] == b"v3"
    assert frame["timestamp"].iloc[3] == pd.Timestamp(3, unit="s", tz="UTC")
    assert list(frame["topic"].unique()) == ["orders"]


def test_pandas_gets_batches(tier: ArrowReader) -> None:
    frames = [batch.to_pandas() for batch in tier.scan("orders", batch_bytes=1 << 10)]
    assert len(frames) > 4
    assert len(pd.concat(frames)) == 67


def test_polars_gets_a_frame(tier: ArrowReader) -> None:
    frame = pl.DataFrame(tier.scan("orders"))
    assert frame.group_by("partition").len().sort("partition").rows() == [(0, 47), (1, 20)]
    assert frame.filter(pl.col("offset") == 46).select("value", "leaderEpoch").rows() == [(b"v46", 0)]
    assert frame.schema["timestamp"] == pl.Datetime("ms", "UTC")


def test_duckdb_queries_a_scan_by_its_name_with_a_filter_and_then_without(tier: ArrowReader) -> None:
    orders = tier.scan("orders")
    with duckdb.connect() as db:
        filtered = db.sql('SELECT "partition", count(*) FROM orders WHERE "offset" >= 18 GROUP BY ALL ORDER BY ALL')
        assert filtered.fetchall() == [(0, 29), (1, 2)]
        assert db.sql("SELECT count(*), min(epoch_ms(timestamp)), max(epoch_ms(timestamp)) FROM orders").fetchall() == [
            (67, 0, 46_000)
        ]
        assert db.sql("SELECT headers[1].key, headers[1].value FROM orders LIMIT 1").fetchall() == [("n", b"0")]
        joined = db.sql('SELECT count(*) FROM orders AS a JOIN orders AS b USING ("partition", "offset")')
        assert joined.fetchall() == [(67,)]
    assert offsets_of(orders.to_table())[-1] == (1, 19)
    assert not tier._thread._streams


def test_duckdb_that_needs_a_few_rows_leaves_nothing_open(tier: ArrowReader) -> None:
    orders = tier.scan("orders", batch_bytes=1 << 10)
    with duckdb.connect() as db:
        db.register("first_orders", orders)
        assert db.sql('SELECT "offset" FROM first_orders LIMIT 3').fetchall() == [(0,), (1,), (2,)]
    assert not tier._thread._streams


def test_failure_of_a_read_reaches_the_consumer(tier: ArrowReader, tmp_path: Path) -> None:
    orders = tier.scan("orders")
    tier.close()
    with pytest.raises(TierError, match="was closed"):
        orders.to_reader().read_all()
    with duckdb.connect() as db, pytest.raises(duckdb.Error, match="was closed"):
        db.sql("SELECT count(*) FROM orders").fetchall()
    with pytest.raises(Exception, match="was closed"):
        pl.DataFrame(orders)


def test_parquet_file_is_written_batch_by_batch(tier: ArrowReader, tmp_path: Path) -> None:
    scan = tier.scan("orders", batch_bytes=1 << 10)
    with pq.ParquetWriter(tmp_path / "orders.parquet", scan.schema) as file:
        for batch in scan:
            file.write_batch(batch)
    written = pq.read_table(tmp_path / "orders.parquet")
    assert offsets_of(written) == offsets_of(scan.to_table())
