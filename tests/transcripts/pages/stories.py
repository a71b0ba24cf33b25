"""Steps of scenes: the state of a host that a page presupposes, and what it tells in words between two commands."""

import asyncio
import json
import re
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.cli.catalogues import seen, write_catalogue
from tests.fakes.log_dirs import CLUSTER_ID, FIRST_TIMESTAMP_MS, LogDirWriter
from tests.golden.unpack import ARCHIVES
from tests.scenarios.log_dirs import base_offsets, delete_copied_segments, partition_dirs
from tests.transcripts.pages.broker_host import STATUS, BrokerHost
from tests.transcripts.pages.fenced import ROOT
from tierd.cli.demo.writer import prepare
from tierd.log import NewRecord, encode_batch, list_log_dir

SEEN_MS = 1_795_000_000_000  # 2026-11-18


def fill_demo(host: BrokerHost) -> None:
    """Write the log dir of the demo, copy it, and delete the older half of its local segments."""
    fill(host, host.log_dir)


def fill(host: BrokerHost, log_dir: Path) -> None:
    """Write a log dir of the demo, copy it, and delete the older half of its local segments."""
    prepare(log_dir, cluster_id=CLUSTER_ID, node_id=1)
    copied = host.run(f"tierd copy --once --config {host.tierd.config_file}")
    assert copied.exit_code == 0, copied.output
    for directory in partition_dirs(log_dir):
        bases = base_offsets(directory)
        assert delete_copied_segments(directory, copied_through=bases[len(bases) // 2] - 1)


def start_demo(host: BrokerHost) -> None:
    """Fill the log dir, and start the daemon on it."""
    fill_demo(host)
    start(host)


def start(host: BrokerHost) -> None:
    """Start the daemon."""
    host.serve("start")


def stop(host: BrokerHost) -> None:
    """Stop the daemon."""
    host.serve("stop")


def start_quick_start(host: BrokerHost) -> None:
    """Start the daemon with config/quickstart.yaml, as ``make run`` does, on a log dir that does not grow."""
    config = host.repository / "config" / "quickstart.yaml"
    config.write_text(f"{host.here(config.read_text())}http: {{listen: {host.places[STATUS]}}}\n")
    host.tierd.config_file = config
    fill(host, host.repository / ".run" / "kafka")
    start(host)


def configure_as_readme(host: BrokerHost) -> None:
    """Write the configuration that README prints, and leave the shell of the quick start."""
    (printed,) = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    stop(host)
    host.path("/etc/tierd/tierd.yaml").write_text(host.here(printed))
    host.log_dir.mkdir()
    host.run("export TIERD_CONFIG=/etc/tierd/tierd.yaml")


def edit_configuration(host: BrokerHost) -> None:
    """Name the log dir and the store of the host in the file."""
    host.tierd.configure({})


def back_up_metadata(host: BrokerHost) -> None:
    """Make the backup of the metadata that is restored."""
    damaged, backup = (host.path(f"{folder}/metadata.db") for folder in ("/var/lib/tierd/damaged", "/backup/tierd"))
    with closing(sqlite3.connect(damaged)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)


def stop_and_lose_metadata(host: BrokerHost) -> None:
    """Stop the daemon, and empty the metadata store."""
    stop(host)
    for file in host.path("/var/lib/tierd").glob("metadata.db*"):
        file.unlink()


def commit_of_billing(host: BrokerHost) -> None:
    """Write into the catalogue what the daemon of another broker has seen of a group."""
    found = list_log_dir(host.log_dir).partitions
    orders = next(each.partition for each in found if str(each.topic_partition) == "orders-0")
    positions = seen(orders, node_id=2, taken_ms=SEEN_MS, end_offset=1200, committed=700)
    asyncio.run(write_catalogue(host.path("/srv/tier"), positions=[positions]))


def unpack_crashed(host: BrokerHost) -> None:
    """Unpack the log dir of a killed broker, and enter it, with the commands of the page."""
    (host.repository / "tests").mkdir(exist_ok=True)
    (host.repository / "tests/golden").symlink_to(ARCHIVES)
    for command in re.findall(r"`(tar -xJf [^`]+|cd /tmp/[^`]+)`", (ROOT / "docs/log-dirs.md").read_text()):
        ended = host.run(command)
        assert ended.exit_code == 0, ended.output


def fill_with_keys(host: BrokerHost, topic: str, keys: Sequence[bytes], *, segment_records: int = 5) -> None:
    """Write one partition with a record for each key, whose segments are all rolled, and copy it."""
    shutil.rmtree(host.log_dir, ignore_errors=True)
    log_dir = LogDirWriter(host.log_dir)
    partition = log_dir.add_partition(topic)
    for first in range(0, len(keys), segment_records):
        records = [
            NewRecord(key, b"value %d" % (first + n), FIRST_TIMESTAMP_MS + first + n)
            for n, key in enumerate(keys[first : first + segment_records])
        ]
        partition.append_batch(encode_batch(records, leader_epoch=0), len(records))
        partition.roll()
    log_dir.write_checkpoints()
    copied = host.run("tierd copy --once")
    assert copied.exit_code == 0, copied.output


def fill_with_alice(host: BrokerHost) -> None:
    """Write and copy twenty records, two of which have the key of the page."""
    keys = [b"alice" if offset in {7, 12} else b"k%d" % offset for offset in range(20)]
    for folder in (host.path("/srv/tier"), host.path("/var/lib/tierd")):
        shutil.rmtree(folder, ignore_errors=True)
    fill_with_keys(host, "orders", keys)


def open_request(host: BrokerHost) -> str:
    """Return the id of the last request for erasure."""
    requests = json.loads(host.run("tierd erase list --json").output)
    return str(requests[-1]["request_id"])


def fill_customers(host: BrokerHost) -> None:
    """Write and copy a compacted topic with four keys."""
    fill_with_keys(host, "customers", [b"customer-%d" % (n % 4) for n in range(60)], segment_records=20)


def limit_size(host: BrokerHost) -> None:
    """Fill the log dir, and set a retention by size that expires some segments."""
    fill_demo(host)
    host.tierd.configure({"topics": {"defaults": {"retention_bytes": "128KiB"}}})


def raise_retention(host: BrokerHost) -> None:
    """Raise the retention, so that the segments that came back stay."""
    host.tierd.configure({"topics": {"defaults": {"retention_bytes": "1GiB"}}})


def stop_copies_of_orders(host: BrokerHost) -> None:
    """Switch the copies of the topic off."""
    host.tierd.configure({"topics": {"overrides": [{"match": "orders", "copy": False}]}})


def name_other_store(host: BrokerHost) -> None:
    """Name an empty metadata store in the configuration."""
    host.tierd.configure({"state_dir": str(host.path("/var/lib/tierd-new"))})
