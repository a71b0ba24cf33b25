"""Demo log dir: formats of Kafka as the log room checks them, growth, continuation, and the daemon beside it."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tests.services.ports import free_port
from tests.services.waiting import wait_until
from tierd.cli.demo.writer import RETENTION_BYTES, SEGMENT_BYTES, opened, prepare
from tierd.log import (
    Damage,
    DirectoryKind,
    inspect_path,
    iter_batches,
    last_stable_offset,
    list_log_dir,
    read_meta_properties,
    read_offset_checkpoint,
    scan_partition,
)
from tierd.model import TopicPartition

CLUSTER, NODE = "demo-cluster", 3
START_MS = 1_700_000_000_000
PAYMENTS = TopicPartition("payments", 0)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    prepare(tmp_path / "kafka", cluster_id=CLUSTER, node_id=NODE)
    return tmp_path / "kafka"


def damage(log_dir: Path) -> list[Damage]:
    return [finding for finding in inspect_path(log_dir) if isinstance(finding, Damage)]


def high_watermarks(log_dir: Path) -> dict[TopicPartition, int]:
    return read_offset_checkpoint(log_dir / "replication-offset-checkpoint")


def test_demo_log_dir_has_no_damage_and_stays_within_its_retention(log_dir: Path) -> None:
    with opened(log_dir) as writer:
        for tick in range(200):
            writer.tick(START_MS + tick)
    assert damage(log_dir) == []
    properties = read_meta_properties(log_dir)
    assert properties is not None
    assert (properties.cluster_id, properties.node_id) == (CLUSTER, NODE)
    listing = list_log_dir(log_dir)
    assert {str(d.topic_partition) for d in listing.partitions} == {"orders-0", "orders-1", "clicks-0", "payments-0"}
    assert all(d.kind is DirectoryKind.CURRENT and d.topic_id for d in listing.partitions)
    for directory in listing.partitions:
        scan = scan_partition(directory)
        assert len(scan.segments) > 3
        assert sum(segment.log.stat().st_size for segment in scan.segments) < RETENTION_BYTES + SEGMENT_BYTES
        assert scan.lineage_problem is None


def test_offsets_of_the_demo_have_no_gap_and_some_transactions_abort(log_dir: Path) -> None:
    directory = next(d for d in list_log_dir(log_dir).partitions if d.topic_partition == PAYMENTS)
    scan = scan_partition(directory)
    expected, aborts = 0, 0
    for segment in scan.segments:
        for batch in iter_batches(segment.log.read_bytes(), name=str(segment.log)):
            assert batch.base_offset == expected
            expected = batch.last_offset + 1
        aborts += segment.transaction_index.exists()
    assert expected == high_watermarks(log_dir)[PAYMENTS]
    assert aborts > 0
    assert last_stable_offset(scan, high_watermark=expected) < expected  # one transaction is open


def test_second_writer_continues_at_the_last_whole_batch_after_a_torn_write(log_dir: Path) -> None:
    before = high_watermarks(log_dir)
    orders = log_dir / "orders-0"
    active = max(orders.glob("*.log"))
    with active.open("ab") as file:
        file.write(active.read_bytes()[:50])  # the first half of a batch
    (log_dir / ".kafka_cleanshutdown").unlink()  # a killed writer leaves no clean stop
    with opened(log_dir) as writer:
        writer.recover(START_MS)
        writer.tick(START_MS)
    after = high_watermarks(log_dir)
    assert all(after[name] > before[name] for name in before)
    assert damage(log_dir) == []
    epochs = (orders / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    assert [int(line.split()[0]) for line in epochs] == [0, 1]
    scan = scan_partition(next(d for d in list_log_dir(log_dir).partitions if d.topic_partition == PAYMENTS))
    assert last_stable_offset(scan, high_watermark=after[PAYMENTS]) < after[PAYMENTS]


def test_second_preparation_changes_no_file(log_dir: Path) -> None:
    before = high_watermarks(log_dir)
    prepare(log_dir, cluster_id="another", node_id=9)
    assert high_watermarks(log_dir) == before


def test_writer_of_the_demo_ends_with_its_standard_input(log_dir: Path) -> None:
    before = high_watermarks(log_dir)
    command = [sys.executable, "-m", "tierd.cli.demo.writer", str(log_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(signal.SIGINT)  # Ctrl-C reaches the writer too, and must not end it
        wait_until(lambda: high_watermarks(log_dir) != before, what="growth", deadline_s=60)
        process.stdin.close()
        assert process.wait(60) == 0
    assert damage(log_dir) == []


def test_demo_ends_on_ctrl_c_and_continues_in_the_next_run(tmp_path: Path) -> None:
    kafka = f"127.0.0.1:{free_port()}"
    settings = {"kafka": {"listeners": [f"PLAINTEXT://{kafka}"]}}
    installation = Installation(tmp_path / "tierd", [tmp_path / "kafka"], settings=settings)
    offsets: list[int] = []
    for _ in range(2):
        command = [str(TIERD), "demo", "--config", str(installation.config_file)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        ) as process:
            wait_until(lambda: copied_through(installation) > max(offsets, default=100), what="copies", deadline_s=60)
            offsets.append(copied_through(installation))
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            said, _ = process.communicate(timeout=40)
        assert process.returncode == 0, said
        assert "Traceback" not in said
        assert f"http://{installation.http}" in said
        assert f"Kafka clients:   {kafka}\n" in said
        assert "cat orders-0" in said
    assert offsets[1] > offsets[0]
    offsets_read = [record["offset"] for record in installation.cat("orders-0")]
    assert offsets_read == list(range(len(offsets_read)))
    verified = installation.tierd("verify", "--deep")
    assert verified.exit_code == 0 or {"unfinished"} == {
        finding["kind"] for finding in installation.tierd("verify", "--json").json_lines()
    }


def copied_through(installation: Installation) -> int:
    try:
        with urllib.request.urlopen(f"http://{installation.http}/status", timeout=5) as reply:
            status = json.loads(reply.read())
    except OSError:
        return -1
    return min((partition["copied_through"] for partition in status["partitions"]), default=-1)
