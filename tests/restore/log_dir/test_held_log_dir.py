"""The guard of a restore: what it refuses, with nothing written (changelog-restore 4.2, step 1)."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.held_lock import held_lock
from tests.restore.log_dir.lab import CLUSTER_ID, Lab, closed, content_of, new_log, write_segments
from tierd.errors import LogDirLockedError, LogError, RefusedError
from tierd.log import MetaProperties, OsDisk, write_meta_properties
from tierd.restore.log_dir.held_log_dir import held_log_dir

BROKER = 1234  # user id of a broker


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def broker(lab: Lab) -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that holds the lock of the log dir until its input ends."""
    with held_lock(lab.log_dir) as process:
        yield process


async def hold(lab: Lab) -> None:
    async with held_log_dir(lab.target, []):
        assert (lab.log_dir / ".lock").exists()


@pytest.mark.spec("changelog-restore 71")
async def test_log_dir_of_a_running_broker_is_refused_and_nothing_is_written(
    lab: Lab, broker: subprocess.Popen[bytes]
) -> None:
    with pytest.raises(LogDirLockedError):
        await hold(lab)
    assert content_of(lab.log_dir) == {".lock": b""}
    assert not lab.stage.exists()
    broker.communicate()
    await hold(lab)


@pytest.mark.spec("changelog-restore 71")
async def test_log_dir_is_locked_until_the_restore_has_ended(lab: Lab) -> None:
    async with held_log_dir(lab.target, []):
        with pytest.raises(LogDirLockedError):
            await hold(lab)
    await hold(lab)
    assert list(lab.log_dir.iterdir()) == []


@pytest.mark.spec("changelog-restore 70")
@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(lambda lab: lab.log_dir / "stage", id="inside"),
        pytest.param(lambda lab: lab.log_dir, id="the-log-dir-itself"),
        pytest.param(lambda lab: lab.root / "second" / "deep" / "stage", id="inside-another-log-dir"),
        pytest.param(lambda lab: lab.root / "third" / "stage", id="inside-a-log-dir-of-another-broker"),
        pytest.param(lambda lab: lab.root / "link" / "stage", id="inside-by-a-link"),
    ],
)
async def test_stage_in_a_log_dir_is_refused(lab: Lab, stage: Callable[[Lab], Path]) -> None:
    (lab.root / "second").mkdir()
    (lab.root / "third").mkdir()
    write_meta_properties(OsDisk(), lab.root / "third", MetaProperties(CLUSTER_ID, 3, None), now_ms=0)
    (lab.root / "link").symlink_to(lab.log_dir)
    target = replace(lab.target, stage=stage(lab), other_log_dirs=(lab.root / "second",))
    with pytest.raises(RefusedError, match="lies in the log dir"):
        async with held_log_dir(target, []):
            raise AssertionError
    assert list(lab.log_dir.iterdir()) == []


async def test_stage_on_another_file_system_is_refused(lab: Lab) -> None:
    elsewhere = Path("/dev/shm/tierd-restore-stage")
    if elsewhere.parent.stat().st_dev == lab.log_dir.stat().st_dev:
        pytest.fail("the host has /dev/shm on the disk of the tests")
    with pytest.raises(RefusedError, match="another file system"):
        async with held_log_dir(replace(lab.target, stage=elsewhere), []):
            raise AssertionError
    assert not elsewhere.exists()


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (MetaProperties("anotherClusterAltogether", 1, None), "belongs to cluster anotherClusterAltogether"),
        (MetaProperties(CLUSTER_ID, 2, None), "belongs to node 2, not to 1"),
    ],
)
async def test_log_dir_of_another_cluster_or_node_is_refused(lab: Lab, found: MetaProperties, problem: str) -> None:
    write_meta_properties(OsDisk(), lab.log_dir, found, now_ms=0)
    with pytest.raises(RefusedError, match=problem):
        async with held_log_dir(replace(lab.target, node_id=1), []):
            raise AssertionError
    assert not lab.stage.exists()


async def test_import_takes_a_log_dir_of_any_cluster(lab: Lab) -> None:
    write_meta_properties(OsDisk(), lab.log_dir, MetaProperties("anotherClusterAltogether", 2, None), now_ms=0)
    async with held_log_dir(replace(lab.target, cluster_id=None), []):
        pass


async def test_lack_of_room_is_refused_before_anything_is_fetched(lab: Lab) -> None:
    log = new_log(lab.root / "lost")
    write_segments(log, 1)
    plan = lab.plan(await lab.copy(closed(log)))
    with pytest.raises(RefusedError, match="bytes are free, and the restore needs"):
        async with held_log_dir(lab.target, [replace(plan, fetch_bytes=1 << 60)]):
            raise AssertionError


async def test_directory_with_which_no_broker_starts_is_named(lab: Lab) -> None:
    (lab.log_dir / "lost+found").mkdir()
    (lab.log_dir / "remote-log-index-cache").mkdir()
    with pytest.raises(RefusedError, match=r"no partitions: lost\+found;"):
        await hold(lab)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
async def test_file_of_another_user_than_the_log_dirs_is_named(lab: Lab) -> None:
    (lab.log_dir / "orders-1").mkdir()
    os.chown(lab.log_dir, 1234, 1234)
    with pytest.raises(RefusedError, match="belongs to user id 1234, but not all that is in it: orders-1"):
        await hold(lab)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
async def test_restored_files_belong_to_the_owner_of_the_log_dir(lab: Lab) -> None:
    os.chown(lab.log_dir, 1234, 2345)
    log = new_log(lab.root / "lost")
    write_segments(log, 1)
    await lab.restore(lab.plan(await lab.copy(closed(log))))
    owners = {path: (path.stat().st_uid, path.stat().st_gid) for path in lab.log_dir.rglob("*")}
    assert set(owners.values()) == {(1234, 2345)}, owners


async def test_log_dir_that_its_owner_cannot_write_is_refused(lab: Lab) -> None:
    lab.log_dir.chmod(0o555)
    with pytest.raises(RefusedError, match="mode 0555"):
        await hold(lab)


async def test_missing_log_dir_is_refused(lab: Lab) -> None:
    lab.log_dir.rmdir()
    with pytest.raises(RefusedError, match="does not exist"):
        await hold(lab)


async def test_damaged_checkpoint_is_found_before_the_work(lab: Lab) -> None:
    (lab.log_dir / "recovery-point-offset-checkpoint").write_text("0\n7\nabc")
    with pytest.raises(LogError, match="recovery-point-offset-checkpoint"):
        await hold(lab)


async def test_partition_in_another_log_dir_of_the_broker_is_refused(lab: Lab) -> None:
    log = new_log(lab.root / "second")
    write_segments(log, 1)
    plan = lab.plan(await lab.copy(closed(log)))
    with pytest.raises(RefusedError, match="two log dirs"):
        await lab.restore(plan, target=replace(lab.target, other_log_dirs=(lab.root / "second",)))
    assert list(lab.log_dir.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
async def test_lock_file_that_a_killed_restore_of_root_leaves_is_the_brokers(lab: Lab) -> None:
    os.chown(lab.log_dir, BROKER, BROKER)
    async with held_log_dir(lab.target, []):
        assert (lab.log_dir / ".lock").stat().st_uid == BROKER


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
async def test_lock_file_of_root_does_not_keep_the_next_restore_out(lab: Lab) -> None:
    (lab.log_dir / ".lock").touch()
    os.chown(lab.log_dir, BROKER, BROKER)
    async with held_log_dir(lab.target, []):
        assert (lab.log_dir / ".lock").stat().st_uid == BROKER


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
async def test_stage_of_another_user_is_refused(lab: Lab) -> None:
    """That user could put other files in the place of checked ones, or links at which root writes."""
    lab.stage.mkdir()
    os.chown(lab.stage, BROKER + 1, BROKER + 1)
    os.chown(lab.log_dir, BROKER, BROKER)
    with pytest.raises(RefusedError, match=f"the stage .* belongs to user id {BROKER + 1}"):
        await hold(lab)
    assert not (lab.log_dir / ".lock").exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
async def test_stage_into_which_others_may_write_is_refused(lab: Lab, mode: int) -> None:
    lab.stage.mkdir()
    lab.stage.chmod(mode)
    with pytest.raises(RefusedError, match="other users may write into the stage"):
        await hold(lab)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
async def test_stage_that_the_broker_has_made_is_taken_by_root(lab: Lab) -> None:
    lab.stage.mkdir(mode=0o755)
    os.chown(lab.stage, BROKER, BROKER)
    os.chown(lab.log_dir, BROKER, BROKER)
    await hold(lab)


async def test_stage_that_is_a_link_is_refused(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    lab.stage.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="is a symbolic link"):
        await hold(lab)
