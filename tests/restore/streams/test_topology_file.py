from pathlib import Path

import pytest

from tierd.errors import ConfigError
from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType
from tierd.restore.streams.topology_file import load_streams_topology

TOPOLOGY = """
application_id: orders
stores:
  - name: counts
    changelog: orders-counts-changelog
    subtopology: 0
    type: timestamped-key-value
  - name: hourly
    changelog: orders-hourly-changelog
    subtopology: 1
    type: timestamped-window
    retention: 1d
    segment_interval: 12h
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "topology.yaml"
    path.write_text(text)
    return path


def test_stores_are_found_by_their_changelogs(tmp_path: Path) -> None:
    topology = load_streams_topology(written(tmp_path, TOPOLOGY))

    assert topology.application_id == "orders"
    assert topology.store_of("orders-hourly-changelog") == StreamsStore(
        name="hourly",
        changelog="orders-hourly-changelog",
        subtopology=1,
        type=StreamsStoreType.TIMESTAMPED_WINDOW,
        retention_ms=86_400_000,
        segment_interval_ms=43_200_000,
    )
    assert topology.store_of("orders") is None


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("retention: 1d", "retention: 86400", "no duration"),
        ("    retention: 1d\n", "", "needs retention and segment_interval"),
        ("timestamped-window", "timeordered-window", "timestamped-window"),
        ("name: hourly", "name: counts", "counts is there twice"),
        ("orders-hourly-changelog", "orders-counts-changelog", "orders-counts-changelog is there twice"),
        ("subtopology: 1", "subtopology: -1", "must be at least 0"),
        ("application_id: orders", "application_id: ../orders", "application id"),
        ("    subtopology: 0\n", "    subtopology: 0\n    partitions: 3\n", "unknown key"),
        ("name: counts", "name: a/b", "cannot be the name of a store"),
    ],
)
def test_fault_is_named_with_its_place(tmp_path: Path, old: str, new: str, fault: str) -> None:
    path = written(tmp_path, TOPOLOGY.replace(old, new))

    with pytest.raises(ConfigError, match=rf"topology\.yaml(:\d+:\d+)?: .*{fault}"):
        load_streams_topology(path)


def test_topology_without_stores_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_streams_topology(written(tmp_path, "application_id: orders\nstores: []\n"))
