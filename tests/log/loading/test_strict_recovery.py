import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.golden.unpack import GoldenCase, golden_cases
from tests.log.logs import NOW_MS, TransactionalProducer, lead, open_log, records
from tierd.errors import DamagedLogError
from tierd.log import read_offset_checkpoint
from tierd.log.files.checkpoints import LEADER_EPOCH_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tierd.log.files.disk import OsDisk
from tierd.log.files.partition_scan import file_name
from tierd.log.loading.strict_recovery import find_damage
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition

CASES = golden_cases("crash")

# Damage that a broker loads without an error although it can be found, with the file that names it. An emptied index
# looks like a sparse one: every clean stop begins the counting anew, and adds to the time index alone.
SEEN = {
    "crash-index-garbage-0": (".index",),
    "crash-index-oversize-0": (".index",),
    "crash-index-missing-flushed-0": (".index",),
    "crash-timeindex-missing-0": (".timeindex",),
    "crash-middle-flip-flushed-0": (".log",),
    "crash-snapshot-corrupt-0": (".snapshot",),
    "crash-epochs-missing-0": (LEADER_EPOCH_CHECKPOINT,),
    "crash-log-missing-middle-0": (".index", ".timeindex"),
    "crash-stray-files-0": (".index", ".txnindex"),
    "crash-txnindex-garbage-0": (".txnindex",),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.partition)
def test_damage_that_a_broker_tolerates_is_found(golden: Path, case: GoldenCase) -> None:
    log_dir = golden / case.logdirs[0]
    recovery_points = read_offset_checkpoint(log_dir / RECOVERY_POINT_CHECKPOINT)
    problems = find_damage(
        OsDisk(),
        log_dir / case.partition,
        recovery_point=recovery_points[TopicPartition.parse(case.partition)],
        clean=False,
    )
    found = [problem.split(": ")[0].rpartition("/")[2] for problem in problems]
    expected = SEEN.get(case.partition, ())
    assert len(found) == len(expected), found
    assert all(name.endswith(suffix) for name, suffix in zip(found, expected, strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.partition)
def test_log_that_a_broker_recovered_has_only_tolerated_damage(golden: Path, case: GoldenCase) -> None:
    problems = [*find_damage(OsDisk(), golden / case.logdirs[1] / case.partition, recovery_point=0, clean=True)]
    kept = {
        "crash-index-garbage-0",
        "crash-index-oversize-0",
        "crash-timeindex-missing-0",
        "crash-middle-flip-flushed-0",
        "crash-txnindex-garbage-0",
    }
    assert bool(problems) == (case.partition in kept)


SMALL = LogConfig(segment_bytes=5 * len(records()), segment_index_bytes=1000, index_interval_bytes=1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a log with transactions, of several segments, after a clean stop."""
    log = open_log(tmp_path, config=SMALL)
    producer = TransactionalProducer(log, 1)
    for number in range(8):
        producer.write(2, now_ms=NOW_MS + number)
        producer.end(commit=bool(number % 2))
        lead(log, records(timestamp_ms=NOW_MS + number))
    log.close()
    assert log.segment_count >= 4
    return log.directory


def test_sound_log_loads_with_strict_recovery(directory: Path) -> None:
    open_log(directory.parent, config=replace(SMALL, strict_recovery=True)).close()
    open_log(directory.parent, config=replace(SMALL, strict_recovery=True)).close()


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def first(directory: Path, suffix: str) -> Path:
    return min(path for path in directory.glob(f"*{suffix}") if path.stat().st_size)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit in the log": lambda d: flip(first(d, ".log")),
    "a torn log": lambda d: first(d, ".log").write_bytes(first(d, ".log").read_bytes()[:-1]),
    "a segment over the next": lambda d: shutil.copy(d / file_name(0, ".log"), d / file_name(1, ".log")),
    "an index entry that leads nowhere": lambda d: flip(first(d, ".index")),
    "a torn index": lambda d: first(d, ".index").write_bytes(first(d, ".index").read_bytes()[:-1]),
    "a time index entry with another timestamp": lambda d: flip(first(d, ".timeindex"), 7),
    "an emptied time index": lambda d: first(d, ".timeindex").write_bytes(b""),
    "a missing index": lambda d: first(d, ".index").unlink(),
    "garbage in a transaction index": lambda d: first(d, ".txnindex").write_bytes(b"\1" * 34),
    "a flipped bit in a snapshot": lambda d: flip(first(d, ".snapshot")),
    "an index without its log": lambda d: (d / file_name(999, ".index")).touch(),
    "an unreadable epoch file": lambda d: (d / LEADER_EPOCH_CHECKPOINT).write_text("1\n0\n"),
    "a missing epoch file": lambda d: (d / LEADER_EPOCH_CHECKPOINT).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_strict_recovery_refuses_damage_and_changes_no_file(directory: Path, damage: str) -> None:
    DAMAGE[damage](directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(DamagedLogError) as caught:
        open_log(directory.parent, config=replace(SMALL, strict_recovery=True))
    assert all(str(directory) in problem for problem in caught.value.problems)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_sparse_index_is_no_damage(tmp_path: Path) -> None:
    """Five appends, a clean stop after each: five entries in the time index, none in the offset index."""
    for number in range(5):
        log = open_log(tmp_path, config=LogConfig(strict_recovery=True))
        lead(log, records(timestamp_ms=NOW_MS + number))
        log.close()
    assert not (log.directory / file_name(0, ".index")).stat().st_size


def test_damage_above_the_recovery_point_is_recovered_and_not_refused(directory: Path) -> None:
    flip(max(directory.glob("*.log")))
    last = int(max(directory.glob("*.log")).name.split(".")[0])
    log = open_log(directory.parent, config=replace(SMALL, strict_recovery=True), clean=False, recovery_point=last)
    assert log.log_end_offset >= last


@pytest.mark.parametrize("name", ["5.log", "-5.log", "00000000000000000005.log.kept", "5.index"])
def test_file_that_a_broker_does_not_open_is_no_damage(tmp_path: Path, name: str) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(records(), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    (log.directory / name).write_bytes(b"notes")
    assert not [*find_damage(OsDisk(), log.directory, recovery_point=0, clean=True)]


@pytest.mark.parametrize("name", [".index", ".timeindex", ".txnindex", ".snapshot", LEADER_EPOCH_CHECKPOINT])
def test_file_above_its_size_limit_is_damage_and_not_read(tmp_path: Path, name: str) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(records(), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    path = log.directory / (file_name(0, name) if name.startswith(".") else name)
    with path.open("ab") as file:
        file.truncate(8 << 30)
    assert [p for p in find_damage(OsDisk(), log.directory, recovery_point=0, clean=True) if "too many" in p]
