"""State directory: accessible only to the user of tierd, with any umask and any earlier mode."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape, write_log_dir
from tests.scenarios.command import TIERD, run_tierd
from tests.scenarios.installation import Installation
from tierd.app.engine.instance_lock import make_state_dir
from tierd.errors import StateDirError
from tierd.metadata.kv import SqliteKeyValueStore

SHAPE = SegmentShape(batches=4, records_per_batch=5, value_bytes=100)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDirWriter:
    return write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=3, shape=SHAPE)


@pytest.fixture
def tierd(tmp_path: Path, log_dir: LogDirWriter) -> Installation:
    return Installation(tmp_path / "tierd", [log_dir.path])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat(follow_symlinks=False).st_mode)


def with_umask(umask: int) -> Sequence[str]:
    return ("sh", "-c", f'umask {umask:03o}; exec "$0" "$@"', str(TIERD))


def open_to_others(directory: Path) -> list[str]:
    """Return the paths that other users may access, without links to files of the broker."""
    return [
        f"{path.relative_to(directory)} {mode(path):04o}"
        for path in (directory, *directory.rglob("*"))
        if mode(path) & 0o077 and not (path.is_file() and path.stat().st_nlink > 1)
    ]


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_all_files_of_the_daemon_in_the_state_dir_are_private(
    tierd: Installation, log_dir: LogDirWriter, umask: int
) -> None:
    (partition,) = log_dir.partitions.values()
    with tierd.daemon(command=with_umask(umask)) as daemon:
        daemon.wait_copied({"synthetic-0": 59})
        partition.append_batch(SHAPE.batch(), 5, times=4)
        partition.roll()  # above the high watermark: held
        daemon.wait_until(lambda: daemon.status()["hold"]["segments"] == 1, what="the hold")
        assert tierd.tierd("cat", "synthetic-0").exit_code == 0
        assert {"control.sock", "hold", "lock", "metadata.db", "metadata.db-wal"} <= {
            path.name for path in tierd.state_dir.iterdir()
        }
        assert open_to_others(tierd.state_dir) == []
    assert open_to_others(tierd.state_dir) == []


def test_state_dir_and_metadata_that_others_may_read_are_made_private(tierd: Installation) -> None:
    with tierd.daemon() as daemon:
        daemon.wait_copied({"synthetic-0": 59})
        for path in tierd.state_dir.glob("metadata.db*"):
            path.chmod(0o644)
        daemon.kill()
        tierd.state_dir.chmod(0o755)
        daemon.start()
        daemon.wait_ready()
        assert open_to_others(tierd.state_dir) == []
        assert "state_dir_mended" in daemon.log_file.read_text()


async def test_metadata_outside_of_the_state_dir_is_private_under_any_umask(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        store = await SqliteKeyValueStore.open(tmp_path / "metadata.db")
    finally:
        os.umask(previous)
    await store.close()
    (tmp_path / "metadata.db").chmod(0o664)
    store = await SqliteKeyValueStore.open(tmp_path / "metadata.db")
    assert {mode(path) for path in tmp_path.iterdir()} == {0o600}
    await store.close()


def test_exported_metadata_is_private_under_any_umask(tierd: Installation, tmp_path: Path) -> None:
    with tierd.daemon() as daemon:
        daemon.wait_copied({"synthetic-0": 59})
    previous = os.umask(0)
    try:
        exported = run_tierd("metadata", "export", "--config", str(tierd.config_file), str(tmp_path / "export.jsonl"))
    finally:
        os.umask(previous)
    assert exported.exit_code == 0, exported.output
    assert mode(tmp_path / "export.jsonl") == 0o600


@as_root
def test_file_of_another_user_in_state_dir_is_refused(tmp_path: Path) -> None:
    planted = tmp_path / "metadata.db"
    planted.touch()
    os.chown(planted, 65534, 65534)
    with pytest.raises(StateDirError, match=r"metadata\.db belongs to user id 65534") as refused:
        make_state_dir(tmp_path)
    assert refused.value.remedy


@as_root
def test_open_state_dir_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    state_dir.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # whose parents are closed to others
    os.seteuid(65534)
    try:
        with pytest.raises(StateDirError, match="is open to other users and belongs to user id 0") as refused:
            make_state_dir(Path("state"))
    finally:
        os.seteuid(0)
    assert "chmod 700" in refused.value.remedy


def test_link_in_state_dir_is_not_followed_by_a_change_of_mode(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    outside.chmod(0o644)
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    (state_dir / "metadata.db").symlink_to(outside)
    make_state_dir(state_dir)
    assert mode(outside) == 0o644
