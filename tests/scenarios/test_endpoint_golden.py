"""Log dirs of real brokers, read by a real client through the endpoint while their local segments go away."""

from pathlib import Path

import pytest

from tests.scenarios.golden_server import GoldenServer, endpoint_settings, golden_server
from tests.scenarios.installation import Installation
from tests.scenarios.lost_disks import CLUSTER_ID
from tests.scenarios.oracle import assert_same_records
from tests.scenarios.test_golden import LOG_DIRS
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_clients.reading_clients import Expected, ReadingClients
from tests.services.ports import free_port

COMPACTED = {
    f"kafka-{version}/compact-pass2/logdir": f"kafka-{version}/compact-pass2/oracle" for version in ("3.9.2", "4.3.1")
}
TRANSACTIONAL = ("txn", "txn-closed", "txn-java")
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


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_client_reads_the_tier_from_a_host_without_log_dirs(
    version: str, golden: Path, tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    source, folder = golden / f"kafka-{version}" / "clean", tmp_path / "beside"
    with golden_server(source / "logdir", source / "oracle", folder, warm_tierd) as server:
        pass
    port = free_port()
    remote = {"backend": "filesystem", "filesystem": {"path": str(folder / "tierd" / "store")}}
    away = Installation(
        tmp_path / "away", [tmp_path / "none"], remote=remote, settings=endpoint_settings(port), warm=warm_tierd
    )
    with (
        away.daemon(verb=("serve", "--from-bucket", "--archive", "--cluster-id", CLUSTER_ID)),
        ReadingClients(tmp_path) as clients,
    ):
        client, address = clients.client("librdkafka"), f"127.0.0.1:{port}"
        everything = _copied(server, committed=False)
        assert len(everything) >= 10
        client.assert_reads(address, everything, committed=False)
        found = client.read(address, dict.fromkeys(everything, 0), committed=True)
    for (topic, number), records in _copied(server, committed=True).items():
        # The marker that ended a transaction may lie behind the end of the tier: reads of committed records end there.
        end = len(found[topic, number]) if topic in TRANSACTIONAL else len(records)
        assert_same_records(found[topic, number], records[:end], what=f"{topic}-{number} committed")
    assert any(found[topic, 0] for topic in TRANSACTIONAL)


def _copied(server: GoldenServer, *, committed: bool) -> Expected:
    """Return the records that the tier has."""
    ends = {partition: end for partition, end in server.copied_through.items() if end >= 0}
    return {
        partition: [record for record in records if record["offset"] <= ends[partition]]
        for partition, records in server.expected(committed=committed).items()
        if partition in ends
    }
