"""Tier that a real broker fills, read by the data source while the tier grows, and after retention of the broker."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.pipeline.source.queries import Queries, as_oracle, read_all
from tests.scenarios.broker_steps import consume_all, let_retention_delete, rolled_through
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Settings
from tests.scenarios.oracle import assert_same_records
from tests.scenarios.traffic import EVERY_KIND, Traffic
from tierd.pipeline.source.positions import StreamProgress

pytestmark = [pytest.mark.service("kafka"), pytest.mark.service("s3")]


def test_batch_and_stream_read_the_records_of_a_consumer_and_of_cat(
    make_broker: MakeBroker, make_installation: MakeInstallation, s3_remote: Settings
) -> None:
    broker = make_broker("4.3.1")
    traffic = Traffic(broker, EVERY_KIND, seed=7)
    tierd = make_installation(broker.log_dirs, remote=s3_remote)
    queries = Queries(tierd.config_file, subscribePattern=".*", partitionBytes="512kB")
    streamed: dict[str, list[Any]] = defaultdict(list)
    progress: StreamProgress = {}
    with tierd.daemon() as daemon:
        traffic.create_topics()
        for _ in range(3):
            traffic.fill(rolled_segments=1)
            daemon.wait_copied(rolled_through(broker, EVERY_KIND))
            progress = _go_on(queries, progress, streamed)
        oracle = consume_all(broker, EVERY_KIND)
        let_retention_delete(broker, EVERY_KIND)
        daemon.wait_copied(rolled_through(broker, EVERY_KIND))
        everything = _by_partition(queries.rows(isolation="read_uncommitted", includeLocal="true"))
        committed = _by_partition(queries.rows(includeLocal="true"))
        _go_on(queries, progress, streamed)
        for partition, (all_records, committed_records) in oracle.items():
            assert_same_records(everything[partition], _plain(all_records), what=partition)
            assert_same_records(committed[partition], _plain(committed_records), what=f"{partition} committed")
            assert_same_records(everything[partition], _plain(tierd.cat(partition)), what=f"{partition} by cat")
            came = streamed[partition]
            assert_same_records(came, _plain(committed_records)[: len(came)], what=f"{partition} streamed")
            assert came or not committed_records


def _go_on(queries: Queries, progress: StreamProgress, streamed: dict[str, list[Any]]) -> Any:  # noqa: ANN401
    """Run a streaming query from the checkpoint of the one before, until no new record is left."""
    reader = queries.stream(startingOffsets="earliest", maxOffsetsPerTrigger="4000")
    try:
        at = progress or reader.initialOffset()
        while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            rows = [row for batch in read_all(reader, reader.partitions(at, end)) for row in batch.to_pylist()]
            for name, records in _by_partition(rows).items():
                streamed[name] += records
            at = end
        return at
    finally:
        reader.stop()


def _by_partition(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[f"{row['topic']}-{row['partition']}"].append(as_oracle(row))
    return found


def _plain(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return records without the fields that a row of the data source lacks."""
    return [{name: value for name, value in record.items() if name != "leaderEpoch"} for record in records]
