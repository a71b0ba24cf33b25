import json
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.golden.unpack import GoldenCase, golden_cases
from tests.log.batches import TOPIC_ID, batch, make_partition, marker, plain, transactional
from tests.log.logs import NOW_MS, lead, open_log, records
from tierd.cli.commands.inspect import inspect
from tierd.errors import SegmentChangedError
from tierd.log import (
    LOG_START_OFFSET_CHECKPOINT,
    Damage,
    Decoded,
    FileFound,
    InspectionFinding,
    Note,
    OsDisk,
    UnifiedLog,
    encode_offset_checkpoint,
    inspect_path,
    repair_partition,
)
from tierd.log.loading.strict_recovery import find_damage
from tierd.model import Lineage

app = typer.Typer()
app.command()(inspect)


def damage(path: Path) -> list[Damage]:
    return [finding for finding in inspect_path(path) if isinstance(finding, Damage)]


def decoded(findings: list[InspectionFinding], kind: str) -> list[Decoded]:
    return [finding for finding in findings if isinstance(finding, Decoded) and finding.kind == kind]


def test_single_segment_file_is_decoded_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000005.log"
    path.write_bytes(plain(5, 2) + plain(7))
    findings = list(inspect_path(path, records=True))
    assert [b.fields["baseOffset"] for b in decoded(findings, "batch")] == [5, 7]
    assert [r.fields["offset"] for r in decoded(findings, "record")] == [5, 6, 7]
    assert decoded(findings, "record")[0].fields["key"] == "azA="
    assert findings[0] == FileFound(path, "segment", path.stat().st_size)


def test_batches_behind_one_with_a_wrong_checksum_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(plain(0) + plain(1) + plain(2))
    data[len(plain(0)) + 65] ^= 1
    path.write_bytes(data)
    findings = list(inspect_path(path))
    assert [b.fields["isvalid"] for b in decoded(findings, "batch")] == [True, False, True]
    assert [(d.position, d.problem) for d in damage(path)] == [(len(plain(0)), "wrong checksum of the batch")]


def test_a_record_that_cannot_be_decoded_is_damage_when_records_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batch(0, [(0, b"k", b"v")], count=2))
    assert damage(path) == []
    assert [d.position for d in inspect_path(path, records=True) if isinstance(d, Damage)] == [0]


def test_every_kind_of_file_is_decoded_by_its_name(golden: Path) -> None:
    folder = golden / "kafka-3.9.2/clean/logdir"
    expected = {
        "meta.properties": "metaProperties",
        "replication-offset-checkpoint": "checkpointEntry",
        "txn-0/partition.metadata": "topicId",
        "txn-0/leader-epoch-checkpoint": "leaderEpoch",
        "txn-0/00000000000000000041.index": "offsetIndexEntry",
        "txn-0/00000000000000000041.timeindex": "timeIndexEntry",
        "txn-0/00000000000000000041.txnindex": "abortedTransaction",
        "txn-0/00000000000000000041.snapshot": "producer",
    }
    for name, kind in expected.items():
        findings = list(inspect_path(folder / name))
        assert decoded(findings, kind), name
        assert len(decoded(findings, kind)) == len(findings) - 1


def test_file_of_an_unknown_kind_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert [type(f) for f in inspect_path(tmp_path / "notes.txt")] == [FileFound, Note]


def test_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SegmentChangedError):
        list(inspect_path(tmp_path / "gone"))


@pytest.mark.parametrize("broker", ["3.9.2", "4.3.1"])
@pytest.mark.parametrize("stage", ["clean", "compact-before"])
def test_a_clean_log_dir_has_no_damage(golden: Path, broker: str, stage: str) -> None:
    assert damage(golden / f"kafka-{broker}/{stage}/logdir") == []


@pytest.mark.parametrize("node", [1, 2])
def test_replica_after_changes_of_leader_has_no_damage(golden: Path, node: int) -> None:
    assert damage(golden / f"kafka-3.9.2/epochs/node{node}/logdir") == []


def test_log_that_was_truncated_to_its_log_start_has_no_damage(tmp_path: Path) -> None:
    """A broker forgets the epoch that begins at a log start inside a segment when it truncates the log to there."""
    log = open_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    for _ in range(2):
        lead(log, records())
    log.update_high_watermark(2)
    log.increment_log_start_offset(1, reason="test")
    log.truncate_to(1, now_ms=NOW_MS)
    assert log.leader_epochs == Lineage()
    write_log_start(log)
    assert damage(log.directory) == []
    (tmp_path / LOG_START_OFFSET_CHECKPOINT).unlink()
    assert [each.problem for each in damage(log.directory)] == [
        "leader epoch 0 at offset 0, where leader-epoch-checkpoint has no epoch"
    ]


def test_time_index_of_the_timestamp_0_alone_is_no_unused_room(tmp_path: Path) -> None:
    """The entry of timestamp 0 at the base offset has no bytes but zeros, as the index of every such segment."""
    log = open_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    for _ in range(3):
        lead(log, records(timestamp_ms=0))
        log.roll(now_ms=NOW_MS)
    log.close()
    assert [path.read_bytes() for path in sorted(log.directory.glob("*.timeindex"))[:3]] == [bytes(12)] * 3
    assert [each for each in inspect_path(log.directory, deep=True) if isinstance(each, Damage)] == []
    assert repair_partition(log.directory, now_ms=NOW_MS, dry_run=True).plan.steps == ()
    assert list(find_damage(OsDisk(), log.directory, recovery_point=0, clean=False)) == []


def rolled_log(log_dir: Path, *, raised_to: int = 0, before: int = 0) -> UnifiedLog:
    """Return a log of four records and a segment for each; its start rose before the record ``before``."""
    log = open_log(log_dir)
    log.assign_topic_id(TOPIC_ID)
    for offset in range(4):
        if offset == before:
            log.increment_log_start_offset(raised_to, reason="test")
        if offset:
            log.roll(now_ms=NOW_MS)
        lead(log, records())
        log.update_high_watermark(offset + 1)
    log.housekeep(NOW_MS)
    return log


def snapshots(log: UnifiedLog) -> list[int]:
    return [int(path.stem) for path in sorted(log.directory.glob("*.snapshot"))]


def write_log_start(log: UnifiedLog) -> None:
    offsets = {log.topic_partition: log.log_start_offset}
    (log.directory.parent / LOG_START_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(offsets))


def test_snapshot_of_a_roll_at_the_log_start_is_not_missing(tmp_path: Path) -> None:
    """A broker takes no snapshot at its log start; the first epoch begins there before the checkpoint is written."""
    log = rolled_log(tmp_path, raised_to=1, before=1)
    assert snapshots(log) == [2, 3]
    assert damage(log.directory) == []
    write_log_start(log)
    assert damage(log.directory) == []


def test_snapshots_that_a_truncation_deletes_below_the_log_start_are_not_missing(tmp_path: Path) -> None:
    log = rolled_log(tmp_path)
    log.increment_log_start_offset(2, reason="test")
    log.truncate_to(2, now_ms=NOW_MS)
    assert snapshots(log) == []
    assert log.leader_epochs == Lineage()
    write_log_start(log)
    assert damage(log.directory) == []


def test_snapshot_above_the_log_start_is_missing(tmp_path: Path) -> None:
    log = rolled_log(tmp_path, raised_to=1, before=1)
    write_log_start(log)
    for offset in (2, 3):
        (log.directory / f"{offset:020d}.snapshot").unlink()
    assert [int(each.path.stem) for each in damage(log.directory)] == [2, 3]


# the files that were damaged by hand: the file that inspect names
DAMAGED_FILES = {
    "untouched": None,
    "txn-untouched": None,
    "idempotent-untouched": None,
    "leftover-deleted": None,
    "leftover-cleaned": None,
    "index-missing": ".index",
    "index-missing-flushed": ".index",
    "index-oversize": ".index",
    "index-garbage": ".index",
    "index-empty-flushed": None,  # a note: an index with few entries is not wrong
    "log-empty-active": ".index",
    "log-missing-middle": ".index",
    "stray-files": ".index",
    "timeindex-missing": ".timeindex",
    "timeindex-garbage": ".timeindex",
    "snapshots-missing": ".snapshot",
    "snapshot-corrupt": ".snapshot",
    "epochs-missing": "leader-epoch-checkpoint",
    "epochs-beyond-end": "leader-epoch-checkpoint",
    "partition-metadata-missing": "partition.metadata",
    "leftover-swap": ".log.swap",
    "txnindex-missing": ".txnindex",
    "txnindex-garbage": ".txnindex",
    "zero-tail": None,  # a note: the zeros look like those of a preallocated segment
    "zero-last-batch": None,
}


@pytest.mark.parametrize("name", ["zero-tail", "zero-last-batch"])
def test_zeros_behind_the_data_of_an_active_segment_are_a_note(golden: Path, name: str) -> None:
    (case,) = (case for case in golden_cases("crash") if case.partition == f"crash-{name}-0")
    findings = inspect_path(golden / case.logdirs[0] / case.partition)
    notes = [each for each in findings if isinstance(each, Note) and each.path.suffix == ".log"]
    assert [note.text.partition(" ")[2] for note in notes] == [
        "bytes of unused room behind the data (preallocate=true)"
    ]


@pytest.mark.parametrize("case", golden_cases("crash"), ids=lambda case: case.partition)
def test_damage_of_a_crash_is_reported_with_its_file(golden: Path, case: GoldenCase) -> None:
    before = golden / case.logdirs[0] / case.partition
    expected = DAMAGED_FILES.get(case.partition.removeprefix("crash-").removesuffix("-0"), ".log")
    found = damage(before)
    if expected is None:
        assert found == []
    else:
        assert any(d.path.name.endswith(expected) for d in found), found
        assert all(d.problem for d in found)
    result = CliRunner().invoke(app, ["--check", str(before)])
    assert result.exit_code == (0 if expected is None else 1), result.output


def test_abort_marker_without_an_index_entry_is_damage(tmp_path: Path) -> None:
    make_partition(tmp_path, {0: transactional(0, 7) + marker(1, 7, commit=False)})
    (found,) = damage(tmp_path / "orders-0")
    assert "aborted at offset 1" in found.problem


def test_inspect_command_prints_text_and_json(tmp_path: Path) -> None:
    make_partition(tmp_path, {0: plain(0, 2)})
    segment = tmp_path / "orders-0" / "00000000000000000000.log"
    text = CliRunner().invoke(app, [str(segment), "--records"])
    assert text.exit_code == 0
    assert "baseOffset: 0 lastOffset: 1 count: 2" in text.output
    assert "| offset: 1" in text.output
    assert text.output.endswith("1 files, 1 batches, 0 damaged places\n")
    lines = [json.loads(line) for line in CliRunner().invoke(app, [str(segment), "--json"]).output.splitlines()]
    assert [line["type"] for line in lines] == ["file", "batch", "summary"]
    assert lines[-1] == {"type": "summary", "files": 1, "batches": 1, "damage": 0}


def test_inspect_command_names_a_path_that_cannot_be_read(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path / "gone")])
    assert result.exit_code == 3
    assert "gone: not there" in result.output


SOUND = [
    plain(0, 3),
    (b"\x00\x00\x00\x05\x00\x00\x00\x46" * 2),
    b"0\n1\n0 0\n",
    b"version: 0\ntopic_id: EjRWeJq83vD-3LqYdlQyEA",
    transactional(0, 7) + marker(1, 7, commit=False),
]
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@given(
    st.dictionaries(
        st.sampled_from(
            [f"{base:020d}{suffix}" for base in (0, 3) for suffix in SUFFIXES]
            + ["leader-epoch-checkpoint", "partition.metadata", "00000000000000000003.log.swap", "x"]
        ),
        st.binary(max_size=60) | st.sampled_from(SOUND) | st.sampled_from(SOUND).map(lambda data: data[:-1]),
        min_size=1,
    )
)
@settings(max_examples=200, deadline=None)
def test_inspection_of_any_bytes_in_any_file_returns_findings(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("any") / "orders-0"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    assert list(inspect_path(folder, records=True))
    for name in files:
        assert list(inspect_path(folder / name, records=True))
    assert list(inspect_path(folder.parent))
