"""repair, inspect and the verbs of log, on directories that no broker uses."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.eventually import eventually
from tests.golden.unpack import golden_cases
from tests.scenarios.command import TIERD, CommandResult, run_tierd
from tests.scenarios.warm_tierd import WarmTierd
from tierd.cli.commands.log import read as read_command
from tierd.log import PartitionDirectory, PartitionScan, file_name, scan_partition

CRASHES = golden_cases("crash")
COUNT = 120


def lines(count: int, *, start: int = 0, epoch: int = 0) -> str:
    records = (
        {
            "offset": start + n,
            "timestamp": 1_700_000_000_000 + n,
            "timestampType": "CreateTime",
            "key": b64encode(b"key %d" % n).decode() if n % 3 else None,
            "value": b64encode(b"value %d" % n).decode(),
            "headers": [["h", None], ["h", b64encode(b"\xff").decode()]] if n % 5 == 0 else [],
            "leaderEpoch": epoch,
        }
        for n in range(count)
    )
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture(scope="module", autouse=True)
def forked(warm: WarmTierd) -> Iterator[None]:
    """Fork commands from a process that has imported tierd: an import takes a second."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys.modules[__name__], "run_tierd", warm.run)
        yield


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a log dir with ``orders-0``: 120 records in batches of ten and segments of about 40; tests copy it."""
    log_dir = tmp_path_factory.mktemp("filled") / "data"
    append(log_dir / "orders-0", lines(COUNT), "--create", "--batch-records", "10", "--set", "segment.bytes=1400")
    return log_dir


@pytest.fixture
def orders(filled: Path, tmp_path: Path) -> Path:
    """Return the partition directory of a copy of ``filled``."""
    return Path(shutil.copytree(filled, tmp_path / "data")) / "orders-0"


@pytest.fixture
def crash(golden: Path, tmp_path: Path) -> Path:
    """Return a log dir after kill -9, with every damage of the golden data."""
    return Path(shutil.copytree(golden / CRASHES[0].logdirs[0], tmp_path / "crash"))


def append(directory: Path, given: str, *options: str) -> CommandResult:
    ended = run_tierd("log", "append", str(directory), *options, given=given)
    assert ended.exit_code == 0, ended.output
    return ended


def read(directory: Path, *options: str) -> list[dict[str, Any]]:
    ended = run_tierd("log", "read", str(directory), "--json", *options)
    assert ended.exit_code == 0, ended.output
    return ended.json_lines()


@contextmanager
def in_use(log_dir: Path) -> Iterator[None]:
    """Lock the log dir as a broker does: with a POSIX lock on the whole of ``.lock``."""
    fd = os.open(log_dir / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


# append and read


def test_appended_records_are_read_unchanged(orders: Path) -> None:
    assert read(orders) == [json.loads(line) for line in lines(COUNT).splitlines()]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_are_the_same_with_every_codec(orders: Path, tmp_path: Path, codec: str) -> None:
    text = run_tierd("log", "read", str(orders), "--json").stdout
    copy = tmp_path / "copy" / "orders-0"
    append(copy, text, "--create", "--compression", codec)
    assert read(copy) == read(orders)
    inspected = run_tierd("inspect", "--deep", str(copy))
    assert inspected.exit_code == 0, inspected.output
    assert f"compresscodec: {codec}" in inspected.stdout


def test_append_prints_the_offsets_as_documented(orders: Path) -> None:
    answer = append(orders, lines(7), "--json").json()
    assert len(answer.pop("topic_id")) == 22
    assert answer == {
        "directory": str(orders),
        "records": 7,
        "batches": 1,
        "first_offset": COUNT,
        "last_offset": COUNT + 6,
        "log_end_offset": COUNT + 7,
        "interrupted": False,
    }


def test_text_line_is_key_and_value_or_a_value(tmp_path: Path) -> None:
    directory = tmp_path / "text-0"
    append(directory, "key\tvalue\twith tab\nonly\n\nlast without end", "--text", "--create")
    found = [(record["key"], b64decode(record["value"])) for record in read(directory)]
    assert found == [(b64encode(b"key").decode(), b"value\twith tab"), (None, b"only"), (None, b"last without end")]


def test_append_can_keep_offsets_and_epochs(tmp_path: Path) -> None:
    directory = tmp_path / "kept-0"
    given = lines(3, start=10, epoch=2) + lines(4, start=20, epoch=5)
    append(directory, given, "--create", "--keep-offsets")
    assert [(r["offset"], r["leaderEpoch"]) for r in read(directory)] == [
        *((10 + n, 2) for n in range(3)),
        *((20 + n, 5) for n in range(4)),
    ]


def test_malformed_line_is_named_and_all_lines_before_it_are_appended(orders: Path) -> None:
    ended = run_tierd("log", "append", str(orders), given=lines(3) + '{"value": 7}\n' + lines(2))
    assert ended.exit_code == 2
    assert "line 4" in ended.stderr
    assert "appended 3 records" in ended.stdout
    assert len(read(orders)) == COUNT + 3


def test_a_record_above_the_limit_is_refused(orders: Path) -> None:
    ended = run_tierd("log", "append", str(orders), "--text", "--set", "max.message.bytes=1000", given="x" * 2000)
    assert ended.exit_code == 1
    assert "max.message.bytes" in ended.stderr or "1000" in ended.stderr
    assert len(read(orders)) == COUNT


async def test_ctrl_c_ends_an_append_with_a_summary(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "stream-0"
    command = [str(TIERD), "log", "append", str(directory), "--create", "--batch-records", "10", "--json"]
    process = subprocess.Popen(  # noqa: ASYNC220 - starts at once; the loop waits for it
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(lines(25).encode())
    process.stdin.flush()
    log = directory / f"{0:020d}.log"
    await eventually(lambda: log.exists() and log.stat().st_size > 0, what="the first batch", deadline_s=60)
    process.send_signal(signal.SIGINT)
    answer, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    result = json.loads(answer)
    assert result["interrupted"]
    assert len(read(directory)) == result["records"] >= 10
    assert result["last_offset"] == result["records"] - 1


def test_read_returns_records_within_its_bounds(orders: Path) -> None:
    assert [r["offset"] for r in read(orders, "--from", "38", "--to", "51")] == list(range(38, 52))
    assert read(orders, "--from", str(COUNT)) == []
    ended = run_tierd("log", "read", str(orders), "--from", str(COUNT + 1))
    assert ended.exit_code == 1


def test_records_before_damage_are_read(crash: Path) -> None:
    directory = crash / "crash-middle-flip-0"
    whole = run_tierd("log", "read", str(directory))
    assert whole.exit_code == 1
    assert "wrong checksum" in whole.stderr
    assert len(whole.stdout.splitlines()) == 65
    part = run_tierd("log", "read", str(directory), "--from", "50", "--to", "64")
    assert (part.exit_code, len(part.stdout.splitlines())) == (0, 15)


def test_committed_read_leaves_out_aborted_records(golden: Path) -> None:
    case = next(case for case in golden_cases("clean") if case.broker == "3.9.2" and case.partition == "txn-0")
    directory = golden / case.logdirs[0] / case.partition
    assert 0 < len(read(directory, "--committed")) < len(read(directory))


def test_committed_read_goes_on_if_the_broker_begins_a_segment(
    orders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listings = []

    def scan_before_a_roll(directory: PartitionDirectory) -> PartitionScan:
        listings.append(scan_partition(directory))
        (orders / file_name(COUNT, ".log")).touch()
        return listings[-1]

    monkeypatch.setattr(read_command, "scan_partition", scan_before_a_roll)
    monkeypatch.setattr(read_command, "log_to_stderr", lambda: None)
    read_command.read(orders, committed=True, json=True)
    assert len(listings) == 2
    assert [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()] == list(range(COUNT))


def test_append_and_roll_are_refused_if_a_recovery_would_lose_records(crash: Path) -> None:
    directory = crash / "crash-middle-flip-0"
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    for verb in ("append", "roll"):
        ended = run_tierd("log", verb, str(directory), given=lines(1))
        assert ended.exit_code == 1
        assert "wrong checksum" in ended.stderr
        assert "tierd repair" in ended.stderr
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


# roll and truncate


def test_second_roll_begins_no_further_segment(orders: Path) -> None:
    before = len(list(orders.glob("*.log")))
    assert run_tierd("log", "roll", str(orders), "--json").json() == {
        "directory": str(orders), "rolled": True, "base_offset": COUNT, "segments": before + 1,
    }  # fmt: skip
    assert not run_tierd("log", "roll", str(orders), "--json").json()["rolled"]


def test_truncate_without_yes_is_refused_with_the_records_that_it_would_cut(orders: Path) -> None:
    ended = run_tierd("log", "truncate", str(orders), "55")
    assert ended.exit_code == 4
    assert "would cut" in ended.stderr
    assert len(read(orders)) == COUNT


def test_truncate_cuts_whole_batches_and_keeps_the_cut_bytes(orders: Path) -> None:
    ended = run_tierd("log", "truncate", str(orders), "55", "--yes", "--json")
    assert ended.exit_code == 0, ended.output
    answer = ended.json()
    assert (answer["log_end_offset"], answer["lost_from"]) == (50, 50)
    assert [record["offset"] for record in read(orders)] == list(range(50))
    assert all((orders / step["kept"]).is_file() for step in answer["steps"] if step["kept"])
    assert run_tierd("repair", str(orders)).exit_code == 0
    assert append(orders, lines(1), "--json").json()["first_offset"] == 50


# repair


def test_repair_reports_a_sound_partition_as_sound(orders: Path) -> None:
    answer = run_tierd("repair", str(orders), "--json").json()
    assert answer == {
        "dry_run": False,
        "directory": str(orders),
        "sound": True,
        "mended": False,
        "log_end_offset": COUNT,
        "lost_from": None,
        "steps": [],
        "damage": [],
        "notes": [],
    }


@pytest.mark.parametrize(
    ("name", "exit_code", "said"),
    [
        ("crash-garbage-tail-0", 0, "cut 137 bytes off"),
        ("crash-index-garbage-0", 0, "anew"),
        ("crash-middle-flip-0", 1, "--cut-damaged"),
        ("crash-partition-metadata-missing-0", 1, "partition.metadata"),
        ("crash-leftover-swap-0", 1, "tierd log recover"),
    ],
)
def test_repair_reports_repaired_or_remaining_damage(crash: Path, name: str, exit_code: int, said: str) -> None:
    for options in (["--dry-run"], []):
        ended = run_tierd("repair", *options, str(crash / name))
        assert ended.exit_code == exit_code, ended.output
        assert said in ended.stdout


def test_inspect_after_repair_finds_no_damage(crash: Path) -> None:
    directory = crash / "crash-txnindex-garbage-0"
    assert run_tierd("inspect", "--check", str(directory)).exit_code == 1
    assert run_tierd("repair", str(directory)).exit_code == 0
    ended = run_tierd("inspect", "--deep", str(directory))
    assert ended.exit_code == 0, ended.output
    assert "kept by tierd" in ended.stdout


def test_a_side_file_can_be_inspected_by_itself(crash: Path) -> None:
    directory = crash / "crash-middle-flip-0"
    assert run_tierd("repair", "--cut-damaged", str(directory)).exit_code == 0
    (side,) = directory.glob("tierd-kept.*.log.from-*")
    ended = run_tierd("inspect", str(side), "--records")
    assert ended.exit_code == 1
    assert "wrong checksum" in ended.stdout
    assert "baseOffset: 68" in ended.stdout


# recover


def test_recover_repairs_a_log_dir_as_a_broker_does(crash: Path) -> None:
    ended = run_tierd("log", "recover", str(crash), "--json")
    assert ended.exit_code == 0, ended.output
    answer = ended.json()
    assert (answer["was_clean"], answer["offline"], answer["problems"]) == (False, False, [])
    found = {each["partition"]: each for each in answer["partitions"]}
    assert found["crash-garbage-tail-0"]["bytes_cut"] == 137
    assert found["crash-middle-flip-0"]["segments_deleted"] == 2
    assert found["crash-middle-flip-0"]["log_end_offset"] == 65
    assert found["crash-partition-metadata-missing-0"]["outcome"] == "stray"
    assert (crash / ".kafka_cleanshutdown").is_file()
    assert not (crash / ".lock").exists()
    again = run_tierd("log", "recover", str(crash), "--json").json()
    assert again["was_clean"]
    assert {each["outcome"] for each in again["partitions"]} == {"loaded", "stray"}


def test_strict_recovery_lists_the_damage_and_changes_no_file(crash: Path) -> None:
    before = {path: path.read_bytes() for path in crash.rglob("*") if path.is_file()}
    ended = run_tierd("log", "recover", str(crash), "--strict", "--json")
    assert ended.exit_code == 1
    problems = ended.json()["problems"]
    for name in ("crash-index-garbage-0", "crash-middle-flip-flushed-0", "crash-timeindex-missing-0"):
        assert any(name in problem for problem in problems)
    assert {path: path.read_bytes() for path in crash.rglob("*") if path.is_file()} == before


def test_recover_reports_no_data_as_an_answer(tmp_path: Path) -> None:
    answer = run_tierd("log", "recover", str(tmp_path), "--json").json()
    assert answer["partitions"] == []


# common to all verbs


@pytest.mark.parametrize(
    "command",
    [
        ["repair", "{dir}"],
        ["repair", "--dry-run", "{dir}"],
        ["log", "append", "{dir}"],
        ["log", "roll", "{dir}"],
        ["log", "truncate", "{dir}", "5", "--yes"],
        ["log", "recover", "{parent}"],
        ["log", "recover", "--strict", "{parent}"],
    ],
)
def test_log_dir_in_use_by_a_broker_is_refused(orders: Path, command: list[str]) -> None:
    with in_use(orders.parent):
        before = sorted((path.name, path.stat().st_mtime_ns) for path in orders.parent.rglob("*"))
        ended = run_tierd(*(word.format(dir=orders, parent=orders.parent) for word in command))
        assert ended.exit_code == 4, ended.output
        assert "in use" in ended.stderr
        assert sorted((path.name, path.stat().st_mtime_ns) for path in orders.parent.rglob("*")) == before


@pytest.mark.parametrize("command", [["repair"], ["log", "recover"]])
def test_unknown_setting_is_refused_with_the_nearest_name(orders: Path, command: list[str]) -> None:
    target = orders.parent if command[-1] == "recover" else orders
    ended = run_tierd(*command, str(target), "--set", "segment.byte=1")
    assert ended.exit_code == 2, ended.output
    assert "segment.bytes" in ended.stderr


@pytest.mark.parametrize("command", [["repair"], ["log", "read"], ["log", "roll"], ["log", "append"]])
def test_a_directory_that_is_no_partition_is_refused(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "nothing").mkdir()
    ended = run_tierd(*command, str(tmp_path / "nothing"))
    assert ended.exit_code == 2, ended.output
    assert "Traceback" not in ended.output
    assert not (tmp_path / ".lock").exists()


def test_append_without_create_makes_no_directory(tmp_path: Path) -> None:
    ended = run_tierd("log", "append", str(tmp_path / "data" / "orders-0"), given=lines(1))
    assert ended.exit_code == 2, ended.output
    assert not (tmp_path / "data").exists()


def test_clean_log_dir_stays_clean_and_other_partitions_are_not_changed(orders: Path) -> None:
    append(orders.with_name("other-0"), lines(3), "--create")
    assert run_tierd("log", "recover", str(orders.parent)).exit_code == 0
    other = {file: file.read_bytes() for file in orders.with_name("other-0").iterdir()}
    append(orders, lines(1))
    assert (orders.parent / ".kafka_cleanshutdown").is_file()
    assert {file: file.read_bytes() for file in orders.with_name("other-0").iterdir()} == other
    found = run_tierd("log", "recover", str(orders.parent), "--json").json()
    assert found["was_clean"]
    assert {each["segments_recovered"] for each in found["partitions"]} == {0}


def test_inspect_shows_the_lock_and_the_clean_stop(orders: Path) -> None:
    assert run_tierd("log", "recover", str(orders.parent)).exit_code == 0
    with in_use(orders.parent):
        ended = run_tierd("inspect", str(orders.parent), "--json")
    kinds = {line["type"]: line for line in ended.json_lines()}
    assert kinds["lock"]["isHeld"] is True
    assert kinds["cleanShutdown"]["brokerEpoch"] == -1


@pytest.mark.parametrize("command", [["repair"], ["log", "roll"]])
def test_partition_that_is_a_link_belongs_to_the_log_dir_of_the_link(
    orders: Path, tmp_path: Path, command: list[str]
) -> None:
    log_dir = tmp_path / "linked"
    log_dir.mkdir()
    (log_dir / orders.name).symlink_to(orders)
    with in_use(log_dir):
        assert run_tierd(*command, str(log_dir / orders.name)).exit_code == 4
    assert run_tierd(*command, str(log_dir / orders.name)).exit_code == 0


def test_an_epoch_that_no_leader_can_have_is_refused(orders: Path) -> None:
    ended = run_tierd("log", "append", str(orders), "--text", "--leader-epoch", str(1 << 31), given="a\n")
    assert ended.exit_code == 2, ended.output


def test_recover_refuses_a_partition_directory(orders: Path) -> None:
    before = sorted(path.name for path in orders.iterdir())
    ended = run_tierd("log", "recover", str(orders))
    assert ended.exit_code == 2, ended.output
    assert sorted(path.name for path in orders.iterdir()) == before
