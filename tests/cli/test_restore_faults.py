"""Faults of a restore into a log dir: a clear error or a resumed run, and never a half-restored directory."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import WarmInstallation
from tests.cli.test_restore_log_dir import LAST_COPY, planned, restore
from tests.fakes.held_lock import held_lock
from tests.fakes.log_dirs import CLUSTER_ID, LogDirWriter, SegmentShape, write_log_dir
from tests.fakes.small_disk import SmallDisk
from tests.scenarios.command import TIERD, CommandResult
from tests.scenarios.installation import Installation
from tests.scenarios.stores import SpoilableS3
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.faulty_path import FaultyPath
from tests.services.s3 import S3Admin, S3Service
from tierd.model import uuid_to_text

LARGE = SegmentShape(batches=8, records_per_batch=8, value_bytes=1000)  # segments of 64 KiB


@pytest.fixture
def running_broker(into: Path) -> Iterator[None]:
    """Hold the lock of the log dir in another process."""
    with held_lock(into):
        yield


def content(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def restored(ended: CommandResult) -> dict[str, dict[str, Any]]:
    """Return the outcome of each partition."""
    return {outcome["partition"]: outcome for outcome in ended.json()["restored"]}


def all_of_the_log_dir(tierd: Installation, into: Path) -> CommandResult:
    return restore(tierd, into, *LAST_COPY, "--yes", "--json", "--cluster-id", CLUSTER_ID, verb=("log-dir",))


# ---------------------------------------------------------------- the target


def make_foreign(into: Path) -> None:
    text = (into / "meta.properties").read_text()
    (into / "meta.properties").write_text(text.replace(CLUSTER_ID, "b3RoZXItY2x1c3Rlci1pZA"))


def take_rights(into: Path) -> None:
    into.chmod(0o555)


def give_away(into: Path) -> None:
    os.chown(into / "audit-0", 1234, 1234)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        pytest.param(make_foreign, "belongs to cluster b3RoZXItY2x1c3Rlci1pZA, not to", id="another cluster"),
        pytest.param(take_rights, "mode 0555: its owner cannot read and write it", id="no rights"),
        pytest.param(
            give_away,
            "but not all that is in it: audit-0",
            id="another owner",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users"),
        ),
    ],
)
def test_log_dir_that_a_broker_could_not_use_afterwards_is_refused_and_stays(
    copied: Installation, into: Path, spoil: Callable[[Path], None], problem: str
) -> None:
    shutil.rmtree(into / "orders-0")
    spoil(into)
    before = content(into)

    ended = all_of_the_log_dir(copied, into)

    into.chmod(0o755)
    assert ended.exit_code == 4, ended.output
    assert problem in " ".join(ended.stderr.split())
    assert content(into) == before
    assert not (into.parent / "kafka.tierd-restore").exists()


@pytest.mark.usefixtures("running_broker")
def test_log_dir_of_a_running_broker_is_refused_and_stays(copied: Installation, into: Path) -> None:
    before = content(into)
    ended = all_of_the_log_dir(copied, into)
    assert ended.exit_code == 4, ended.output
    assert content(into) == before


def test_topic_that_was_made_again_is_named_in_the_plan_and_keeps_its_directory(
    copied: Installation, into: Path, tmp_path: Path
) -> None:
    old_id = planned(copied, into, *LAST_COPY)["topic_id"]
    anew = LogDirWriter(tmp_path / "anew")
    orders = anew.add_partition("orders")
    orders.append([b"of the new topic"])
    anew.write_checkpoints()
    before = content(anew.path / "orders-0")

    dry = restore(copied, anew.path, *LAST_COPY, "--dry-run", "--json", verb=("partition", "orders-0"))
    named = restore(copied, anew.path, *LAST_COPY, "--yes", verb=("partition", "orders-0"))

    assert dry.exit_code == named.exit_code == 4, named.output
    (plan,) = dry.json()["partitions"]
    assert plan["left_out"]
    (finding,) = plan["findings"]
    assert f"is of topic id {uuid_to_text(orders.topic_id)}, not {old_id}" in finding["text"]
    assert "the topic was deleted and made again" in named.stderr
    assert content(anew.path / "orders-0") == before


# ---------------------------------------------------------------- the disk


@pytest.fixture
def many_small(tmp_path: Path, warm: WarmTierd) -> Installation:
    """Return a tier whose segments take a page of the disk each, and some hundred bytes in a plan."""
    log_dir = write_log_dir(tmp_path / "lost", partitions=1, rolled_segments=60, shape=SegmentShape(batches=1))
    tierd = WarmInstallation(tmp_path / "tierd", [log_dir.path], warm=warm)
    assert tierd.tierd("copy", "--once").exit_code == 0
    return tierd


@pytest.mark.parametrize(
    ("size_kib", "exit_code", "problem"),
    [
        pytest.param(40, 4, "bytes are free, and the restore needs", id="known before"),
        pytest.param(300, 3, "No space left on device", id="full on the way"),
    ],
)
def test_restore_onto_a_full_disk_ends_and_goes_on_when_there_is_room(
    many_small: Installation, tmp_path: Path, size_kib: int, exit_code: int, problem: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    into = disk / "kafka"
    run: list[str | Path] = [TIERD, "restore", "log-dir", "--into", into, *LAST_COPY, "--cluster-id", CLUSTER_ID]
    run += ["--yes", "--config", many_small.config_file]
    listing: list[str | Path] = ["find", into, "-name", "*.log"]

    told = SmallDisk(disk, size_kib).tell(["mkdir", into], run, listing, then_with_room=[run, listing])

    assert told.exit_codes == [0, exit_code, 0, 0, 0], told.output
    assert problem in " ".join(told.output.split())
    assert "Traceback" not in told.output
    done = next(number for number, line in enumerate(told.lines) if "1 of 1 partitions are restored" in line)
    assert not any(str(into / "synthetic-0") in line for line in told.lines[:done])
    assert sum(line.endswith(".log") for line in told.lines[done:]) == 61


# ---------------------------------------------------------------- the tier


@pytest.fixture
def two_partitions(tmp_path: Path, warm: WarmTierd) -> Installation:
    """Return a tier of two partitions, of which the second has large segments behind small ones."""
    return _in_tier(tmp_path, WarmInstallation(tmp_path / "tierd", [tmp_path / "lost"], warm=warm))


def _in_tier(tmp_path: Path, tierd: Installation) -> Installation:
    lost = LogDirWriter(tmp_path / "lost")
    for topic, shapes in (("small", [SegmentShape()] * 3), ("large", [SegmentShape(), LARGE, LARGE])):
        writer = lost.add_partition(topic)
        for shape in shapes:
            writer.append_batch(shape.batch(), shape.records_per_batch, times=shape.batches)
            writer.roll()
        writer.append([b"active"])
    lost.write_checkpoints()
    copied = tierd.tierd("copy", "--once")
    assert copied.exit_code == 0, copied.output
    return tierd


def test_object_that_is_missing_keeps_its_partition_out_until_it_is_there(
    two_partitions: Installation, tmp_path: Path
) -> None:
    into = tmp_path / "new"
    into.mkdir()
    store = two_partitions.store_dir
    gone = sorted(path for path in store.rglob("*.log") if "large" in str(path.relative_to(store)))[1]
    kept = gone.rename(tmp_path / "kept")

    broken = all_of_the_log_dir(two_partitions, into)
    kept.rename(gone)
    whole = all_of_the_log_dir(two_partitions, into)

    assert broken.exit_code == 1, broken.output
    outcomes = restored(broken)
    assert outcomes["small-0"]["problem"] == ""
    assert gone.name.removesuffix(".log")[-22:] in outcomes["large-0"]["problem"]
    assert whole.exit_code == 0, whole.output
    assert {outcome["problem"] for outcome in restored(whole).values()} == {""}
    assert_same_logs(tmp_path / "lost", into)


@pytest.fixture
def spoilable_s3(s3_service: S3Service, s3_bucket: str, s3_admin: S3Admin, faulty_s3: FaultyPath) -> SpoilableS3:
    """Return an empty bucket behind a path that can be spoiled."""
    return SpoilableS3(s3_service, s3_bucket, s3_admin, faulty_s3)


@pytest.mark.service("s3")
def test_store_that_goes_away_ends_the_restore_and_the_next_run_fetches_the_rest(
    spoilable_s3: SpoilableS3, tmp_path: Path, warm: WarmTierd
) -> None:
    tierd = WarmInstallation(tmp_path / "tierd", [tmp_path / "lost"], remote=spoilable_s3.remote(), warm=warm)
    _in_tier(tmp_path, tierd)
    into = tmp_path / "new"
    into.mkdir()

    spoilable_s3.path.disable()
    unreached = all_of_the_log_dir(tierd, into)
    spoilable_s3.path.enable()
    spoilable_s3.path.add("limit_data", bytes=30_000)  # of each connection: a large segment does not get through
    cut_off = all_of_the_log_dir(tierd, into)
    staged = sorted(path.name for path in (tmp_path / "new.tierd-restore").glob("large-0/1/parts/*.log"))
    half_restored = (into / "large-0").exists()
    spoilable_s3.path.remove("limit_data")
    whole = all_of_the_log_dir(tierd, into)

    assert unreached.exit_code == 3, unreached.output
    assert cut_off.exit_code == 3, cut_off.output
    assert "Traceback" not in unreached.output + cut_off.output
    assert staged, "nothing was kept for the next run"
    assert not half_restored
    assert whole.exit_code == 0, whole.output
    assert_same_logs(tmp_path / "lost", into)


def assert_same_logs(lost: Path, into: Path) -> None:
    """Compare the rolled segments of both partitions with the lost ones."""
    for partition in ("small-0", "large-0"):
        rolled = sorted((lost / partition).glob("*.log"))[:-1]
        assert len(rolled) == 3
        for log in rolled:
            assert (into / partition / log.name).read_bytes() == log.read_bytes(), log
