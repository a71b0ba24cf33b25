"""Directory of the cluster metadata: whole or not at all, as a controller expects it."""

import json
from pathlib import Path

import pytest

from tests.restore.catalogue.metadata_snapshots import NAME, cluster_snapshot
from tests.restore.log_dir.lab import Lab
from tierd.log import newest_metadata_snapshot
from tierd.restore.catalogue.cluster_snapshot import parse_cluster_snapshot
from tierd.restore.log_dir.held_log_dir import HeldLogDir, held_log_dir
from tierd.restore.log_dir.metadata_restore import METADATA_DIRECTORY, restore_cluster_metadata, write_identity

CONTENT = cluster_snapshot({})
SNAPSHOT = parse_cluster_snapshot(NAME, CONTENT)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_directory_has_the_snapshot_and_its_epoch_without_a_vote(lab: Lab) -> None:
    async with held_log_dir(lab.target, []) as held:
        restore_cluster_metadata(held, SNAPSHOT, CONTENT)
    directory = lab.log_dir / METADATA_DIRECTORY
    assert names(directory) == [NAME, "quorum-state"]
    found = newest_metadata_snapshot([lab.log_dir])
    assert found is not None
    assert (found.name, found.read()) == (NAME, CONTENT)
    assert json.loads((directory / "quorum-state").read_text()) == {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": 7,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [],
        "data_version": 0,
    }


async def test_directory_that_is_there_stays_as_it_is(lab: Lab) -> None:
    directory = lab.log_dir / METADATA_DIRECTORY
    directory.mkdir()
    (directory / "quorum-state").write_text("{}")
    async with held_log_dir(lab.target, []) as held:
        restore_cluster_metadata(held, SNAPSHOT, CONTENT)
    assert names(directory) == ["quorum-state"]


async def test_remains_of_an_interrupted_run_are_replaced(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: HeldLogDir, path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    async with held_log_dir(lab.target, []) as held:
        with monkeypatch.context() as patched:
            patched.setattr(HeldLogDir, "give_to_owner", fail)
            with pytest.raises(OSError, match="No space"):
                restore_cluster_metadata(held, SNAPSHOT, CONTENT)
        assert METADATA_DIRECTORY not in names(lab.log_dir)
        (lab.stage / METADATA_DIRECTORY / "ready" / "older.checkpoint").write_bytes(b"?")
        restore_cluster_metadata(held, SNAPSHOT, CONTENT)
    assert names(lab.log_dir / METADATA_DIRECTORY) == [NAME, "quorum-state"]


async def test_identity_is_written_as_it_was(lab: Lab) -> None:
    text = "#caf\xe9\ncluster.id=c\nnode.id=1\n"
    async with held_log_dir(lab.target, []) as held:
        write_identity(held, text)
    assert (lab.log_dir / "meta.properties").read_bytes() == text.encode("latin-1")
