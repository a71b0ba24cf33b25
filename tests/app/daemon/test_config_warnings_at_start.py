"""Warnings of check-config and at the start about valid settings that are seldom intended."""

import json
from pathlib import Path

from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.scenarios.installation import Installation


def test_start_and_check_config_warn_of_a_store_on_another_host_over_http(tmp_path: Path) -> None:
    shape = SegmentShape(batches=1, records_per_batch=1)
    log_dir = write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=0, shape=shape)
    address = "http://192.0.2.1:9000"  # TEST-NET-1: no host has it, and nothing is rolled that would be sent there
    s3 = {"bucket": "tierd", "region": "eu", "endpoint_url": address, "access_key_id": "a", "secret_access_key": "b"}
    tierd = Installation(tmp_path / "tierd", [log_dir.path], remote={"backend": "s3", "s3": s3})

    checked = tierd.tierd("check-config", "--json")
    daemon = tierd.daemon()
    daemon.start()
    try:
        daemon.wait_until(lambda: "config_questionable" in daemon.log_file.read_text(), what="the warning")
    finally:
        daemon.kill()
    lines = daemon.log_file.read_text().splitlines()
    logged = [json.loads(line) for line in lines if "config_questionable" in line]

    assert checked.exit_code == 0, checked.output
    assert [warning["key"] for warning in checked.json()["warnings"]] == ["remote.s3.endpoint_url"]
    assert [(each["key"], each["level"]) for each in logged] == [("remote.s3.endpoint_url", "warning")]
    assert "192.0.2.1" not in json.dumps(logged)
