"""segments, cat, explain and verify over a tier that copy --once has filled, local files deleted or not."""

import json
import os
import signal
import subprocess
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import LAST_OFFSET, ROLLED_THROUGH
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tierd.log import identify_directory, scan_partition
from tierd.model import TopicPartition
from tierd.tiering.local.hold import SegmentHold


def broker_deletes_everything_rolled(log_dir: LogDirWriter) -> None:
    for file in (log_dir.path / "orders-0").glob("*.*"):
        base = file.stem
        if base.isdigit() and int(base) <= ROLLED_THROUGH and file.suffix != ".snapshot":
            file.unlink()


def test_segments_as_json_is_the_documented_contract(copied: Installation) -> None:
    segments = copied.segments("orders-0")
    assert [(s["start_offset"], s["end_offset"], s["state"]) for s in segments] == [
        (0, 3, "COPY_SEGMENT_FINISHED"),
        (4, 7, "COPY_SEGMENT_FINISHED"),
        (8, 11, "COPY_SEGMENT_FINISHED"),
    ]
    assert set(segments[0]) >= {
        "segment_id",
        "start_offset",
        "end_offset",
        "state",
        "size_bytes",
        "max_timestamp_ms",
        "segment_leader_epochs",
    }
    assert segments[0]["segment_leader_epochs"] == [[0, 0]]
    assert len(segments[0]["segment_id"]) == 22


def test_segments_of_a_partition_that_was_never_copied_is_an_empty_list(tierd: Installation) -> None:
    assert tierd.segments("orders-0") == []


def test_cat_reads_both_tiers_as_one_log(copied: Installation, log_dir: LogDirWriter) -> None:
    before = copied.cat("orders-0")
    broker_deletes_everything_rolled(log_dir)
    after = copied.cat("orders-0")
    assert [record["offset"] for record in before] == list(range(LAST_OFFSET + 1))
    assert after == before
    assert set(before[0]) == {"offset", "timestamp", "timestampType", "key", "value", "headers", "leaderEpoch"}
    assert b64decode(before[5]["value"]) == b"value 1"
    assert before[0]["key"] is None


def roll_and_lose_all_that_rolled(log_dir: LogDirWriter, *, hold_dir: Path | None = None) -> None:
    """Roll the active segment; let the broker delete it before its copy, with or without a hold."""
    orders = log_dir.partitions[TopicPartition("orders", 0)]
    orders.roll()
    orders.append([b"after"])
    log_dir.write_checkpoints()
    directory = identify_directory(orders.path)
    assert directory is not None
    if hold_dir is not None:
        hold = SegmentHold(mode="link", hold_dir=hold_dir, max_bytes=None)
        assert len(hold.protect(scan_partition(directory), copied_through=ROLLED_THROUGH)) == 1
    for file in orders.path.glob("*.*"):
        if file.stem.isdigit() and int(file.stem) <= LAST_OFFSET and file.suffix != ".snapshot":
            file.unlink()


def test_segment_that_tierd_holds_is_reported_as_queued(copied: Installation, log_dir: LogDirWriter) -> None:
    roll_and_lose_all_that_rolled(log_dir, hold_dir=copied.state_dir / "hold")
    read = copied.tierd("cat", "orders-0", "--from", "12")
    assert read.exit_code == 1
    assert "offset 12 is not in the tier yet" in read.output
    assert "the next readable offset is 16" in read.output
    explained = copied.tierd("explain", "orders-0", "13", "--json").json()
    assert (explained["place"], explained["local_file"]) == ("queued", None)
    assert "tierd holds its segment" in explained["why"]
    assert copied.tierd("verify", "orders-0").exit_code == 0
    assert copied.tierd("copy", "--once").exit_code == 0
    assert [r["offset"] for r in copied.cat("orders-0")] == list(range(17))


def test_records_that_a_log_lost_when_it_was_cut_back_are_read_from_the_tier_or_missed(
    copied: Installation, log_dir: LogDirWriter
) -> None:
    log_dir.partitions[TopicPartition("orders", 0)].cut_back(4)  # the checkpoint still says 16
    read = copied.tierd("cat", "orders-0", "--json")
    assert read.exit_code == 1
    assert [each["offset"] for each in map(json.loads, read.stdout.splitlines())] == list(range(12))
    assert "offset 12 is not in the tier, and the files of the local log end at 4" in read.output
    assert [r["offset"] for r in copied.cat("orders-0", "--to", "11")] == list(range(12))
    explained = copied.tierd("explain", "orders-0", "13", "--json").json()
    assert explained["place"] == "lost"
    assert "files end at 4, below the high watermark 16" in explained["why"]
    in_tier = copied.tierd("explain", "orders-0", "9", "--json").json()
    assert in_tier["place"] == "remote"
    assert "files end at 4, below the high watermark 16" in in_tier["why"]


def test_offsets_in_neither_tier_are_reported_as_lost(copied: Installation, log_dir: LogDirWriter) -> None:
    roll_and_lose_all_that_rolled(log_dir)
    read = copied.tierd("cat", "orders-0", "--from", "12")
    assert read.exit_code == 1
    assert "offset 12 is in neither tier" in read.output
    explained = copied.tierd("explain", "orders-0", "13", "--json").json()
    assert explained["place"] == "lost"
    verified = copied.tierd("verify", "orders-0", "--json")
    assert [finding["kind"] for finding in verified.json_lines()] == ["gap"]


def test_cat_includes_both_of_its_bounds(copied: Installation) -> None:
    assert [r["offset"] for r in copied.cat("orders-0", "--from", "3", "--to", "9")] == list(range(3, 10))


def test_cat_of_an_empty_range_prints_no_record(copied: Installation) -> None:
    assert copied.cat("orders-0", "--from", str(LAST_OFFSET + 1)) == []


def test_text_output_of_cat_escapes_control_characters(tierd: Installation, log_dir: LogDirWriter) -> None:
    hostile = log_dir.add_partition("hostile")
    hostile.append([b"two\nlines", b"\x1b[2J\ttab", "smile é ☺".encode(), b"\xff\xfe", None])
    log_dir.write_checkpoints()
    lines = tierd.tierd("cat", "hostile-0").stdout.splitlines()
    values = [line.split("\t")[3] for line in lines]
    assert values == ["two\\nlines", "\\x1b[2J\\ttab", "smile é ☺", "\\xff\\xfe", "null"]
    assert lines[0].split("\t")[:3] == ["0", "2023-11-14T22:13:20.000Z", "null"]


def test_cat_into_a_closed_pipe_is_quiet(tierd: Installation, log_dir: LogDirWriter) -> None:
    many = log_dir.add_partition("many")
    for _ in range(200):
        many.append([bytes(1000)] * 20)
    log_dir.write_checkpoints()
    command = f"{TIERD} cat many-0 --json --config {tierd.config_file} | head -n 1"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert json.loads(ended.stdout)["offset"] == 0
    assert ended.stderr == ""
    assert ended.returncode == 0


def test_ctrl_c_ends_cat_without_a_traceback(tierd: Installation, log_dir: LogDirWriter) -> None:
    many = log_dir.add_partition("many")
    for _ in range(500):
        many.append([bytes(1000)] * 20)
    log_dir.write_checkpoints()
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [TIERD, "cat", "many-0", "--config", str(tierd.config_file)], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    os.read(reader, 1)  # the command has begun to print, and waits for its reader
    process.send_signal(signal.SIGINT)
    with os.fdopen(reader, "rb") as output:
        while output.read(1 << 16):
            pass
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == b""


@pytest.mark.parametrize(("offset", "place"), [(0, "both"), (13, "local")])
def test_explain_names_the_place_of_a_record(copied: Installation, offset: int, place: str) -> None:
    ended = copied.tierd("explain", "orders-0", str(offset), "--json")
    assert ended.exit_code == 0
    assert ended.json()["place"] == place


def test_explain_follows_a_record_into_the_tier(
    tierd: Installation, copied: Installation, log_dir: LogDirWriter
) -> None:
    broker_deletes_everything_rolled(log_dir)
    found = copied.tierd("explain", "orders-0", "4", "--json").json()
    assert found["place"] == "remote"
    assert (tierd.store_dir / found["remote_key"]).is_file()
    text = copied.tierd("explain", "orders-0", "4").stdout
    assert found["remote_key"] in text


def test_explain_reports_a_queued_segment(tierd: Installation) -> None:
    assert tierd.tierd("explain", "orders-0", "4", "--json").json()["place"] == "queued"


def test_verify_of_a_sound_tier_has_no_finding(copied: Installation) -> None:
    for options in ([], ["--deep"], ["orders-0", "--deep"]):
        ended = copied.tierd("verify", *options)
        assert ended.exit_code == 0, ended.output
        assert "nothing wrong" in ended.stdout


def test_verify_of_a_sample_says_how_much_of_the_tier_it_was(copied: Installation) -> None:
    ended = copied.tierd("verify", "--deep", "--sample", "100%", "--json")

    (note,) = ended.json_lines()
    assert ended.exit_code == 0
    assert (note["severity"], note["kind"]) == ("note", "sample")
    assert "(100.0 %), chosen by seed 0" in note["what"]


def test_sample_without_a_deep_check_is_refused(copied: Installation) -> None:
    ended = copied.tierd("verify", "--sample", "5%")

    assert ended.exit_code == 2
    assert "--sample belongs to --deep" in ended.stderr


def test_deep_check_in_several_runs_goes_on_and_begins_anew_when_all_is_checked(
    copied: Installation, tmp_path: Path
) -> None:
    progress = ["--resume", str(tmp_path / "progress")]
    runs = [
        copied.tierd("verify", "--deep", *progress, *options, "--json")
        for options in (["--for", "0"], [], ["--for", "0"])
    ]

    assert [run.exit_code for run in runs] == [0, 0, 0]
    notes = [run.json_lines()[0]["what"] for run in runs]
    assert notes[0].endswith("0 of them in this run; 3 are left: the next run goes on")
    assert "3 of 3 segments" in notes[1]
    assert notes[1].endswith("3 of them in this run; 0 are left: the next run begins anew")
    assert notes[2].endswith("3 are left: the next run goes on")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--resume", "p"], "--resume belongs to --deep"),
        (["--deep", "--sample", "5%", "--resume", "p"], "--resume belongs to --deep"),
        (["--deep", "--for", "2h"], "--for belongs to --resume"),
        (["--deep", "--resume", "p", "--for", "soon"], "is no duration"),
        (["--deep", "--resume", "p", "--for", "-1"], "write a time such as 2h"),
    ],
)
def test_options_of_a_resumed_check_that_do_not_fit_are_refused(
    copied: Installation, options: list[str], problem: str
) -> None:
    ended = copied.ask("verify", *options)

    assert ended.exit_code == 2
    assert problem in " ".join(ended.stderr.split())


def flip_last_byte(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize(
    ("damage", "options", "kind"),
    [
        (Path.unlink, [], "missing-object"),
        (flip_last_byte, ["--deep"], "damaged-log"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), [], "wrong-size"),
    ],
)
def test_verify_names_damage_and_exits_with_1(
    copied: Installation, damage: Callable[[Path], object], options: list[str], kind: str
) -> None:
    log = sorted(copied.store_dir.rglob("*.log"))[1]
    damage(log)
    ended = copied.tierd("verify", *options, "--json")
    assert ended.exit_code == 1, ended.output
    findings = ended.json_lines()
    assert kind in {finding["kind"] for finding in findings}
    assert all(finding["remedy"] for finding in findings)


def test_copy_once_reports_its_copies_and_a_second_pass_copies_no_segment(tierd: Installation) -> None:
    for _ in range(2):
        ended = tierd.tierd("copy", "--once", "--json")
        assert ended.exit_code == 0, ended.output
        through = {entry["partition"]: entry["copied_through"] for entry in ended.json()}
        assert through == {"orders-0": ROLLED_THROUGH, "audit-0": -1}
    assert len(tierd.segments("orders-0")) == 3


def test_copy_once_copies_only_the_named_partitions(tierd: Installation, log_dir: LogDirWriter) -> None:
    other = log_dir.add_partition("other")
    other.append([b"a"])
    other.roll()
    other.append([b"b"])
    log_dir.write_checkpoints()
    assert tierd.tierd("copy", "--once", "other-0").exit_code == 0
    assert len(tierd.segments("other-0")) == 1
    assert tierd.segments("orders-0") == []


def test_check_config_as_json_lists_every_fault(tierd: Installation) -> None:
    assert tierd.tierd("check-config", "--json").json() == {"valid": True, "faults": [], "warnings": []}
    tierd.configure({"copy": {"intervall": "30s", "concurrency": "many"}})
    ended = tierd.tierd("check-config", "--json")
    assert ended.exit_code == 2
    answer = ended.json()
    assert not answer["valid"]
    assert len(answer["faults"]) == 2
    assert all(fault["line"] > 0 and fault["column"] > 0 for fault in answer["faults"])
