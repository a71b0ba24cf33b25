"""Files of a node: ``meta.properties`` as text, and the newest snapshot of the cluster metadata."""

from pathlib import Path

import pytest

from tests.fakes.log_dirs import make_batch
from tierd.errors import CorruptRecordError
from tierd.log import newest_metadata_snapshot, read_meta_properties_text


def write_snapshot(log_dir: Path, end_offset: int, *, epoch: int = 1, suffix: str = "") -> bytes:
    """Write a snapshot of the cluster metadata, and return its content."""
    directory = log_dir / "__cluster_metadata-0"
    directory.mkdir(parents=True, exist_ok=True)
    content = make_batch([b"%d" % end_offset]) + make_batch([b"more"], base_offset=1)
    (directory / f"{end_offset:020d}-{epoch:010d}.checkpoint{suffix}").write_bytes(content)
    return content


def test_newest_snapshot_of_all_log_dirs_is_found(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write_snapshot(one, 9)
    newest = write_snapshot(other, 10)
    write_snapshot(other, 11, suffix=".part")
    write_snapshot(other, 12, suffix=".deleted")
    found = newest_metadata_snapshot([one, other, tmp_path / "none"])
    assert found is not None
    assert found.name == "00000000000000000010-0000000001.checkpoint"
    assert found.read() == newest


def test_node_without_a_snapshot_has_none(tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    assert newest_metadata_snapshot([tmp_path]) is None


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_damaged_snapshot_is_refused(tmp_path: Path, damage: str) -> None:
    content = write_snapshot(tmp_path, 9)
    found = newest_metadata_snapshot([tmp_path])
    assert found is not None
    damaged = {"cut": content[:-1], "changed": content[:-1] + b"?", "empty": b""}[damage]
    found.path.write_bytes(damaged)
    with pytest.raises(CorruptRecordError):
        found.read()


def test_text_of_meta_properties_is_read_as_it_is(tmp_path: Path) -> None:
    assert read_meta_properties_text(tmp_path) is None
    (tmp_path / "meta.properties").write_bytes(b"# \xe9\ncluster.id=c\n")
    assert read_meta_properties_text(tmp_path) == "# \xe9\ncluster.id=c\n"
