"""``tierd restore store --streams``: stores of a Kafka Streams application, filled from the tier."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.source.small_tier import SmallTier
from tests.restore.streams.states import read_store
from tests.scenarios.command import CommandResult
from tests.scenarios.warm_tierd import WarmTierd
from tierd.restore.streams.state_directory import StreamsStateDirectory

TOPOLOGY = """
application_id: shop
stores:
  - name: newest
    changelog: orders
    subtopology: 2
    type: timestamped-key-value
"""

Restore = Callable[..., CommandResult]


@pytest.fixture
def restore(warm: WarmTierd, tmp_path: Path) -> Restore:
    """Return a function that runs ``tierd restore store orders-0 --streams`` on a tier of 20 records."""
    tier = SmallTier(tmp_path)
    tier.add_segment(20)
    tier.log_dir.write_checkpoints()
    topology = tmp_path / "topology.yaml"
    topology.write_text(TOPOLOGY)

    def run(*arguments: str) -> CommandResult:
        options = ("--into", str(tmp_path / "state"), "--streams", str(topology))
        config = ("--config", str(tier.installation.config_file))
        return warm.run("restore", "store", "orders-0", *options, *config, *arguments)

    return run


def test_plan_names_the_directory_of_the_application(restore: Restore, tmp_path: Path) -> None:
    ended = restore("--dry-run", "--json")

    assert ended.exit_code == 0, ended.output
    assert ended.json()[0]["directory"] == str(tmp_path / "state/shop/2_0/rocksdb/newest")
    assert not (tmp_path / "state").exists()


def test_store_is_put_where_the_application_looks_for_it(restore: Restore, tmp_path: Path) -> None:
    ended = restore()

    assert ended.exit_code == 0, ended.output
    assert "1 of 1 stores are complete" in ended.stdout
    task = tmp_path / "state/shop/2_0"
    assert (task / ".checkpoint").read_text() == "0\n1\norders 0 19\n"
    stored = read_store(task / "rocksdb/newest")[".:keyValueWithTimestamp"]
    assert stored == {
        key: (int(value[1:]) * 1000).to_bytes(8, "big") + value
        for key, value in ((b"k0", b"v18"), (b"k1", b"v19"), (b"k2", b"v17"))
    }


def test_running_application_is_refused(restore: Restore, tmp_path: Path) -> None:
    running = StreamsStateDirectory.open(tmp_path / "state", "shop")
    ended = restore()
    running.close()

    assert ended.exit_code == 4, ended.output
    assert "stop the application, then restore again" in ended.stderr


def test_changelog_without_store_in_the_topology_is_refused(restore: Restore, tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY.replace("changelog: orders", "changelog: payments"))
    ended = restore()

    assert ended.exit_code == 4, ended.output
    assert "no store with the changelog orders" in ended.stderr


def test_faulty_topology_is_named_with_the_place(restore: Restore, tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY.replace("timestamped-key-value", "session"))
    ended = restore()

    assert ended.exit_code != 0
    assert "topology.yaml:7:" in ended.stderr
    assert "needs retention and segment_interval" in ended.stderr


def test_timestamps_are_the_business_of_the_topology(restore: Restore) -> None:
    ended = restore("--timestamped")

    assert ended.exit_code == 2
    assert "the topology file says" in ended.stderr
