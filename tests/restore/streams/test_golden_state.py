import json
import tarfile
from pathlib import Path

import pytest

from tests.golden.unpack import ARCHIVES
from tests.restore.streams.states import COUNTS, WINDOWS, read_log, read_store, restore
from tierd.restore.streams.streams_store import StreamsStore


@pytest.fixture
def streams(tmp_path: Path) -> Path:
    """Return the remains of a Kafka Streams 3.9.2 application: state, changelogs and oracle."""
    with tarfile.open(ARCHIVES / "kafka-3.9.2-streams.tar.xz") as archive:
        archive.extractall(tmp_path / "golden", filter="data")
    return tmp_path / "golden" / "kafka-3.9.2" / "streams"


def test_key_value_store_of_an_application_is_read_as_its_queries_answered(streams: Path) -> None:
    counts = read_store(streams / "state/golden/0_0" / COUNTS.directory)

    oracle = json.loads((streams / "oracle/counts.json").read_text())
    assert counts == {
        ".:default": {},
        ".:keyValueWithTimestamp": {
            row["key"].encode(): row["timestamp"].to_bytes(8, "big") + row["value"].to_bytes(8, "big") for row in oracle
        },
    }


def test_window_store_of_an_application_is_read_as_its_queries_answered(streams: Path) -> None:
    windows = read_store(streams / "state/golden/0_0" / WINDOWS.directory)

    oracle = json.loads((streams / "oracle/windows.json").read_text())
    segment = str(WINDOWS.segment_directory(WINDOWS.segment_id(oracle[0]["windowStart"])))
    assert windows == {
        f"{segment}:default": {},
        f"{segment}:keyValueWithTimestamp": {
            row["key"].encode() + row["windowStart"].to_bytes(8, "big") + bytes(4): row["timestamp"].to_bytes(8, "big")
            + row["value"].to_bytes(8, "big")
            for row in oracle
        },
    }


@pytest.mark.parametrize("store", [COUNTS, WINDOWS], ids=["key-value", "window"])
async def test_store_restored_from_the_log_directory_equals_that_of_the_application(
    streams: Path, tmp_path: Path, store: StreamsStore
) -> None:
    changelog = read_log(streams / "logdir" / f"{store.changelog}-0")

    restored = await restore(store, changelog, tmp_path / "state", application_id="golden")

    task = Path("golden/0_0")
    assert restored.directory == tmp_path / "state" / task / store.directory
    assert read_store(restored.directory) == read_store(streams / "state" / task / store.directory)


async def test_checkpoint_of_both_stores_equals_that_of_the_application(streams: Path, tmp_path: Path) -> None:
    for store in (COUNTS, WINDOWS):
        await restore(
            store, read_log(streams / "logdir" / f"{store.changelog}-0"), tmp_path / "state", application_id="golden"
        )

    task = Path("golden/0_0/.checkpoint")
    assert (tmp_path / "state" / task).read_bytes() == (streams / "state" / task).read_bytes()
