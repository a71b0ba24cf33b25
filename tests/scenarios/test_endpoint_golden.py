"""Log dirs of real brokers, read by a real client through the endpoint while their local segments go away."""

from pathlib import Path

import pytest

from tests.scenarios.golden_server import golden_server
from tests.scenarios.test_golden import LOG_DIRS
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_clients.reading_clients import ReadingClients

COMPACTED = {
    f"kafka-{version}/compact-pass2/logdir": f"kafka-{version}/compact-pass2/oracle" for version in ("3.9.2", "4.3.1")
}
SHARES = (0.0, 0.5, 1.0)


@pytest.mark.parametrize("source", [*LOG_DIRS, *COMPACTED])
def test_client_reads_a_log_dir_of_a_broker_while_its_copied_segments_are_deleted(
    source: str, golden: Path, tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    oracle = golden / (LOG_DIRS | COMPACTED)[source]
    with golden_server(golden / source, oracle, tmp_path, warm_tierd) as server, ReadingClients(tmp_path) as clients:
        client = clients.client("librdkafka")
        deleted = 0
        for share in SHARES:
            deleted += server.delete_local(share)
            for committed in (False, True):
                expected = server.expected(committed=committed)
                assert len(expected) >= 2
                client.assert_reads(server.bootstrap, expected, committed=committed)
    assert deleted >= 5
