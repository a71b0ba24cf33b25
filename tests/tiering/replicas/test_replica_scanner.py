"""ReplicaScanner: a scan of a log dir whose disk does not answer is shown, since no deadline ends it."""

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import write_log_dir
from tests.log.batches import TOPIC_ID
from tierd.control import StaticLeadership
from tierd.log import PartitionDirectory, encode_topic_id
from tierd.tiering import SegmentHold
from tierd.tiering.replicas import replica_scanner
from tierd.tiering.replicas.replica import Replica, ReplicaTable
from tierd.tiering.replicas.replica_scanner import ReplicaScanner

SECOND_NS = 1_000_000_000


class IgnoringListener:
    """Listener that ignores all events."""

    async def appeared(self, replica: Replica) -> None:
        del replica

    async def changed(self, replica: Replica, *, moved: bool) -> None:
        del replica, moved

    async def vanished(self, replica: Replica) -> None:
        del replica


@pytest.mark.parametrize("call", ["list_log_dir", "scan_partition"])
async def test_log_dir_whose_disk_does_not_answer_is_reported_until_it_answers(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, sound = (write_log_dir(tmp_path / name, partitions=1, rolled_segments=1).path for name in ("bad", "good"))
    go_on, has_begun, inner, time_ns = threading.Event(), threading.Event(), getattr(replica_scanner, call), [0]

    def hang(asked: Path | PartitionDirectory, **known: object) -> object:
        if hanging == (asked if isinstance(asked, Path) else asked.path.parent):
            has_begun.set()
            go_on.wait(60)
        return inner(asked, **known)

    monkeypatch.setattr(replica_scanner, call, hang)
    subject = ReplicaScanner(
        [hanging, sound],
        table=ReplicaTable(),
        hold=SegmentHold(mode="none", hold_dir=tmp_path / "hold", max_bytes=None),
        leadership=StaticLeadership(),
        listener=IgnoringListener(),
        wants=lambda _: True,
        now_ns=lambda: time_ns[0],
    )
    looking = asyncio.create_task(subject.reconcile())
    try:
        await eventually(has_begun.is_set, what="the scan")
        assert [state.problem for state in subject.log_dirs()] == ["", ""]
        time_ns[0] += 90 * SECOND_NS
        told = {hanging: f"{hanging}: a scan has lasted for 90 s; the disk hangs or is slow", sound: ""}
        await eventually(
            lambda: {state.path: state.problem for state in subject.log_dirs()} == told, what="the hanging one alone"
        )
    finally:
        go_on.set()
        await looking
    assert [state.problem for state in subject.log_dirs()] == ["", ""]


@pytest.mark.parametrize("left", [(), ("lost+found", ".lock")])
@pytest.mark.parametrize("restarts", [False, True])
async def test_log_dir_whose_disk_is_wiped_or_not_mounted_keeps_its_replicas_and_holds(
    tmp_path: Path, left: tuple[str, ...], restarts: bool
) -> None:
    """An empty directory is all that is left of either, and what is held may be the last copy."""
    log_dir = write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=2)
    log_dir.write_checkpoints()
    scanner, table, hold = scanner_of(tmp_path, log_dir.path)
    await scanner.recover_holds()
    await scanner.reconcile()
    (replica,) = table.all()
    await replica.local.protect(copied_through=-1)
    assert hold.statistics().segments == 2
    log_dir.path.rename(tmp_path / "away")
    log_dir.path.mkdir()
    for name in left:
        (log_dir.path / name).mkdir()
    if restarts:
        scanner, table, hold = scanner_of(tmp_path, log_dir.path)
        await scanner.recover_holds()
    await scanner.reconcile()
    assert hold.statistics().segments == 2
    assert table.all() == (() if restarts else (replica,))
    assert ["is empty" in state.problem for state in scanner.log_dirs()] == [True]
    for name in left:
        (log_dir.path / name).rmdir()
    log_dir.path.rmdir()
    (tmp_path / "away").rename(log_dir.path)
    await scanner.reconcile()
    assert len(table.all()) == 1
    assert hold.statistics().segments == 2
    assert [state.problem for state in scanner.log_dirs()] == [""]


async def test_holds_go_with_the_last_replica_of_a_log_dir_that_is_in_use(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=2)
    log_dir.write_checkpoints()
    scanner, table, hold = scanner_of(tmp_path, log_dir.path)
    await scanner.reconcile()
    (replica,) = table.all()
    await replica.local.protect(copied_through=-1)
    shutil.rmtree(replica.local.path)
    await scanner.reconcile()
    assert not table.all()
    assert hold.statistics().segments == 0


async def test_directory_of_a_new_topic_with_the_inode_of_the_former_is_not_scanned_as_the_former(
    tmp_path: Path,
) -> None:
    log_dir = write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=2)
    scanner, table, _ = scanner_of(tmp_path, log_dir.path)
    await scanner.reconcile()
    (former,) = table.all()
    (former.local.path / "partition.metadata").write_bytes(encode_topic_id(TOPIC_ID))
    (former.local.path / f"{10**6:020d}.log").touch()
    before = former.local.scan
    assert await scanner.scan(former.local.path)
    assert former.local.scan == before
    assert "another directory" in former.problem
    await scanner.reconcile()
    assert [replica.local.partition.topic_id for replica in table.all()] == [TOPIC_ID]


async def test_new_log_dir_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    scanner, _, _ = scanner_of(tmp_path, tmp_path / "kafka")
    await scanner.reconcile()
    assert [state.problem for state in scanner.log_dirs()] == [""]


def scanner_of(tmp_path: Path, log_dir: Path) -> tuple[ReplicaScanner, ReplicaTable, SegmentHold]:
    table, hold = ReplicaTable(), SegmentHold(mode="auto", hold_dir=tmp_path / "hold", max_bytes=None)
    scanner = ReplicaScanner(
        [log_dir],
        table=table,
        hold=hold,
        leadership=StaticLeadership(),
        listener=IgnoringListener(),
        wants=lambda _: True,
    )
    return scanner, table, hold
