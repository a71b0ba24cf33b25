"""Recovery equality: tierd recovers 37 damaged directories to the same files as a real broker.

One log manager starts on a copy of the damaged log dir and stops cleanly, as the broker did. Between the two the broker
was read by a consumer, and ran for longer than ``file.delete.delay.ms``: so the clock moves by that time, and the due
deletions run. The broker had one replica of each partition, which is why the high watermark is the log end.

The test compares every name and every byte of every file, except

- snapshots, which are sets of producers, in no order;
- checkpoints, whose lines have no order;
- the broker epoch in the clean marker, which the cluster gives;
- ``crash-partition-metadata-missing``: broker and tierd rename it to ``-stray`` for want of a topic id, and the test
  compares the renamed directory; the broker then began an empty log in its place, because the metadata of the cluster
  assigned the partition to it; tierd has no such metadata here;
- lines about ``__consumer_offsets`` and ``__transaction_state``, whose directories are not in the archive.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.golden.unpack import GoldenCase, golden_cases, read_lines, read_offsets
from tests.log.logs import housekeep
from tests.log.reading import Found, read_whole_log
from tierd.log import read_offset_checkpoint, read_producer_snapshot
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings, lacks_topic_id
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition

CASES = golden_cases("crash")
STARTED_MS = 1_795_252_762_000  # 2026-11-21 09:19:22, when the broker started: producers expire by this clock
STRAY_ID = "b44a1d0c4a7f4f52b3e97c0470b92ead"
SET_ASIDE = "crash-partition-metadata-missing-0"
DELETE_DELAY_S = 1.0

of_each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.partition)


@dataclass(frozen=True, slots=True)
class Recovered:
    log_dir: Path
    logs: dict[str, Found]


@pytest.fixture(scope="module")
def recovered(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Recovered:
    log_dir = tmp_path_factory.mktemp("crash") / "logdir"
    shutil.copytree(golden / CASES[0].logdirs[0], log_dir)
    clock = FakeClock(now_ms=STARTED_MS)
    manager = LogManager(
        [log_dir],
        LogManagerSettings(
            config_for=config_of, clock=clock, is_stray=lacks_topic_id, new_id=lambda: STRAY_ID, broker_epoch=315
        ),
    )
    with manager:
        logs = {str(log.topic_partition): read_whole_log(log) for log in manager.logs()}
        clock.advance(DELETE_DELAY_S)
        housekeep(manager, now_ms=clock.now_ms())
    return Recovered(log_dir, logs)


def config_of(topic: str) -> LogConfig:
    case = next(case for case in CASES if case.partition.rpartition("-")[0] == topic)
    return LogConfig.from_kafka({name: str(value) for name, value in case.config.items()})


def directory_of(case: GoldenCase) -> str:
    return f"{SET_ASIDE}.{STRAY_ID}-stray" if case.partition == SET_ASIDE else case.partition


@of_each_case
@pytest.mark.spec("log-format LOAD-13")
def test_recovered_directory_equals_that_of_the_broker_byte_for_byte(
    golden: Path, recovered: Recovered, case: GoldenCase
) -> None:
    ours = recovered.log_dir / directory_of(case)
    theirs = golden / case.logdirs[1] / directory_of(case)
    names = sorted(path.name for path in theirs.iterdir())
    assert sorted(path.name for path in ours.iterdir()) == names
    for name in names:
        if name.endswith(".snapshot"):
            assert set(read_producer_snapshot(ours / name)) == set(read_producer_snapshot(theirs / name)), name
        else:
            assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.partition != SET_ASIDE], ids=lambda case: case.partition
)
def test_recovered_log_has_the_records_that_the_broker_served(
    golden: Path, recovered: Recovered, case: GoldenCase
) -> None:
    oracle, found = golden / case.oracle, recovered.logs[case.partition]
    lines = read_lines(oracle / "records.jsonl.gz")
    # a flipped bit in a flushed segment: the broker serves the batch, the client and our reader here refuse it
    assert found.stopped_at_damage == any("error" in line for line in lines)
    assert found.offsets == read_offsets(oracle)
    assert found.records == [line for line in lines if "error" not in line]
    if (oracle / "committed.jsonl.gz").exists():
        assert found.committed == read_lines(oracle / "committed.jsonl.gz")


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_checkpoints_after_recovery_equal_those_of_the_broker(golden: Path, recovered: Recovered, name: str) -> None:
    theirs = read_offset_checkpoint(golden / CASES[0].logdirs[1] / name)
    assert theirs.pop(TopicPartition.parse(SET_ASIDE), 0) == 0  # begun anew
    for topic in ("__consumer_offsets", "__transaction_state"):
        theirs.pop(TopicPartition(topic, 0), None)
    assert read_offset_checkpoint(recovered.log_dir / name) == theirs


def test_files_of_the_log_dir_after_recovery_equal_those_of_the_broker(golden: Path, recovered: Recovered) -> None:
    theirs = golden / CASES[0].logdirs[1]
    expected = {path.name for path in theirs.iterdir()} - {SET_ASIDE}
    assert {path.name for path in recovered.log_dir.iterdir()} == expected
    for name in (".kafka_cleanshutdown", "meta.properties", "bootstrap.checkpoint"):
        assert (recovered.log_dir / name).read_bytes() == (theirs / name).read_bytes()


@of_each_case
def test_second_start_and_stop_of_a_recovered_log_changes_no_file(
    golden: Path, recovered: Recovered, case: GoldenCase
) -> None:
    """A second start and stop, without recovery, changes no file."""
    assert golden
    log_dir = recovered.log_dir.with_name(f"again-{case.partition}")
    directory = log_dir / directory_of(case)
    shutil.copytree(recovered.log_dir / directory_of(case), directory)
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", ".kafka_cleanshutdown"):
        shutil.copy(recovered.log_dir / name, log_dir / name)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with LogManager([log_dir], LogManagerSettings(config_for=config_of, clock=FakeClock(now_ms=STARTED_MS + 60_000))):
        pass
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
