"""``tierd export`` at the real command line: formats, ranges, later runs, kills, faults."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tierd as tierd_package
from tests.exporting.exported import all_offsets, files, offsets, staged
from tests.fakes.small_disk import SmallDisk
from tests.pipeline.source.small_tier import SmallTier
from tests.scenarios.command import TIERD, CommandResult
from tests.scenarios.golden_tiers import copied_golden, golden_records
from tests.scenarios.oracle import assert_same_records
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.waiting import wait_until
from tierd.cli.failures import ExitCode

DEADLINE_S = 120.0
SEED = 16
LARGE_RECORDS = 3_000


@pytest.fixture
def small(tmp_path: Path) -> SmallTier:
    """Return ``orders-0`` with offsets 0 to 26, of which 20 and more are not in the tier, and ``orders-1`` to 19."""
    made = SmallTier(tmp_path)
    made.append(20)
    made.roll()
    made.append(20, number=1)
    made.roll(number=1)
    made.copy()
    made.append(7)
    made.log_dir.write_checkpoints()
    return made


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> SmallTier:
    """Return ``orders-0`` with 3,000 records."""
    made = SmallTier(tmp_path_factory.mktemp("large"))
    made.append(LARGE_RECORDS)
    made.roll()
    made.copy()
    return made


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "export"


class Exports:
    """Exports of a tier into one directory."""

    def __init__(self, small: SmallTier, into: Path, warm: WarmTierd) -> None:
        self.arguments = ["--into", str(into), "--config", str(small.installation.config_file)]
        self._warm = warm

    def run(self, *arguments: str) -> CommandResult:
        return self._warm.run("export", *arguments, *self.arguments)

    def answer(self, *arguments: str) -> Any:  # noqa: ANN401 - JSON has any type
        done = self.run(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return done.json()


@pytest.fixture
def exports(small: SmallTier, into: Path, warm: WarmTierd) -> Exports:
    return Exports(small, into, warm)


def test_parquet_files_have_the_rows_of_the_reader(small: SmallTier, exports: Exports, into: Path) -> None:
    done = exports.run("orders")
    assert done.exit_code == 0, done.output
    assert "2 of 2 partitions are complete: this run wrote 47 records" in done.stdout
    written = pa.concat_tables(pq.read_table(into / name) for name in files(into))
    with tierd_package.reader(small.installation.config_file) as tier:
        expected = tier.scan("orders").to_table()
    assert written.schema.remove_metadata().names == expected.schema.names
    assert written.to_pylist() == expected.to_pylist()
    assert staged(into) == []


def test_json_lines_are_those_of_cat(small: SmallTier, exports: Exports, into: Path) -> None:
    answer = exports.answer("orders", "--format", "jsonl", "--from", "3", "--to", "25")
    assert [(each["partition"], each["records"], each["next_offset"]) for each in answer["partitions"]] == [
        (0, 23, 26),
        (1, 17, 20),
    ]
    lines = [json.loads(line) for line in (into / files(into)[0]).read_text().splitlines()]
    small.installation.warm = exports._warm
    assert lines == small.installation.cat("orders-0", "--from", "3", "--to", "25", "--committed")


def test_golden_transactions_are_exported_as_a_consumer_reads_them(
    golden: Path, tmp_path: Path, into: Path, warm: WarmTierd
) -> None:
    _, installation = copied_golden(golden / "kafka-4.3.1/clean/logdir", tmp_path / "golden")
    for isolation, file in (("--uncommitted", "records"), ("--committed", "committed")):
        target = into / file
        done = warm.run(
            *("export", "txn.*", "plain-.*", isolation, "--format", "jsonl", "--partitioned-by", "topic"),
            *("--into", str(target), "--config", str(installation.config_file)),
        )
        assert done.exit_code == 0, done.output
        names = files(target)
        assert len(names) > 5
        for name in names:
            partition = Path(name).name.rsplit("-", maxsplit=2)[0]
            written = [json.loads(line) for line in (target / name).read_text().splitlines()]
            expected = golden_records(golden / "kafka-4.3.1/clean/oracle" / partition, file)
            assert_same_records(written, expected, what=f"{partition} {isolation}")


def test_time_bounds_are_those_of_the_first_records_that_are_not_older(exports: Exports, into: Path) -> None:
    exports.answer("orders", "--from-time", "1970-01-01T00:00:18Z", "--to-time", "21000")
    assert all_offsets(into) == [18, 18, 19, 19, 20]


def test_plan_shows_offsets_and_bytes_and_writes_nothing(exports: Exports, into: Path) -> None:
    answer = exports.answer("orders", "--dry-run")
    assert [(each["from_offset"], each["end_offset"], each["goes_on"]) for each in answer["partitions"]] == [
        (0, 27, False),
        (0, 20, False),
    ]
    assert all(each["log_bytes"] > 400 and each["records"] == 0 for each in answer["partitions"])
    told = exports.run("orders", "--dry-run")
    assert "at most 47 records, about 1.4 KiB in the log; nothing was written" in told.stdout
    assert not into.exists()


def test_later_run_adds_what_is_new_and_partitions_that_were_added(
    small: SmallTier, exports: Exports, into: Path
) -> None:
    exports.answer("orders")
    small.append(3)
    small.append(2, number=2)
    small.log_dir.write_checkpoints()
    plan = exports.answer("orders", "--dry-run")["partitions"]
    assert [(each["from_offset"], each["end_offset"], each["goes_on"]) for each in plan] == [
        (27, 30, True),
        (20, 20, True),
        (0, 2, False),
    ]
    answer = exports.answer("orders")
    assert [each["records"] for each in answer["partitions"]] == [3, 0, 2]
    assert all_offsets(into) == sorted([*range(30), *range(20), 0, 1])


def test_topics_of_kafkas_own_are_exported_only_by_their_names(small: SmallTier, exports: Exports, into: Path) -> None:
    small.append(4, "__internal")
    small.log_dir.write_checkpoints()
    exports.answer(".*", "--partitioned-by", "topic")
    assert {name.partition("/")[0] for name in files(into)} == {"topic=orders"}
    shutil.rmtree(into)
    exports.answer("__.*", "--partitioned-by", "topic")
    assert {name.partition("/")[0] for name in files(into)} == {"topic=__internal"}


def journal_lines(into: Path) -> int:
    journal = into / ".tierd-export/journal"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def test_export_that_is_killed_again_and_again_loses_and_repeats_no_record(
    large: SmallTier, into: Path, warm: WarmTierd, tmp_path: Path
) -> None:
    randomness, kills = random.Random(SEED), 0
    arguments = ["export", "orders", "--rows-per-file", "60", *Exports(large, into, warm).arguments]
    for _ in range(40):
        target = journal_lines(into) + randomness.randrange(4, 16)
        process = warm.daemons.start(arguments, tmp_path / "export.log")
        wait_until(
            lambda: process.poll() is not None or journal_lines(into) >= target,  # noqa: B023
            what="the export to go on",
            deadline_s=DEADLINE_S,
            last_seen=(tmp_path / "export.log").read_text,
            interval_s=0.001,
        )
        process.kill()
        if process.wait(DEADLINE_S) == 0:
            break
        assert process.wait(DEADLINE_S) == -signal.SIGKILL, (tmp_path / "export.log").read_text()
        kills += 1
        found = all_offsets(into)
        assert found == sorted(set(found))
    assert kills >= 3
    assert all_offsets(into) == list(range(LARGE_RECORDS))
    assert staged(into) == []


def test_ctrl_c_leaves_whole_files_and_the_next_run_goes_on(large: SmallTier, into: Path, warm: WarmTierd) -> None:
    exports = Exports(large, into, warm)
    arguments = ["export", "orders", "--format", "jsonl", "--rows-per-file", "10", *exports.arguments]
    process = subprocess.Popen([str(TIERD), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: journal_lines(into) > 5, what="the first files", deadline_s=DEADLINE_S, interval_s=0.001)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.INTERRUPTED, said
    before = all_offsets(into)
    assert 50 <= len(before) < LARGE_RECORDS
    assert before == list(range(len(before)))
    assert staged(into) == []
    answer = exports.answer("orders", "--format", "jsonl", "--rows-per-file", "10")
    assert answer["partitions"][0]["records"] == LARGE_RECORDS - len(before)
    assert all_offsets(into) == list(range(LARGE_RECORDS))


def test_full_disk_ends_the_run_and_a_run_with_room_goes_on(large: SmallTier, into: Path) -> None:
    into.mkdir()
    target = into / "files"
    arguments = [*("export", "orders", "--format", "jsonl", "--rows-per-file", "50"), *("--into", str(target))]
    run = [str(TIERD), *arguments, "--config", str(large.installation.config_file)]
    counting = ["sh", "-c", f"cat {target}/*.jsonl | wc -l"]
    told = SmallDisk(into, 200).tell(run, counting, then_with_room=[run, counting])
    assert told.exit_codes == [3, 0, 0, 0], told.output
    assert "make room or mend the disk, then run it again" in told.output
    whole = int(told.lines[1])
    assert 0 < whole < LARGE_RECORDS
    assert int(told.lines[-1]) == LARGE_RECORDS


def test_disk_of_a_log_dir_is_not_filled(large: SmallTier, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    settings = large.installation.settings | {"log_dirs": [{"path": str(disk / "kafka"), "owner": "kafka"}]}
    config = tmp_path / "tierd.yaml"
    config.write_text(json.dumps(settings))
    options = ["--format", "jsonl", "--rows-per-file", "50", "--into", str(disk / "files"), "--config", str(config)]
    run = [str(TIERD), "export", "orders", *options]
    moved = ["cp", "-r", str(large.log_dir.path), str(disk / "kafka")]
    free = ["stat", "-f", "-c", "%a %b", str(disk)]
    told = SmallDisk(disk, 600).tell(moved, run, free, then_with_room=[run])
    assert told.exit_codes == [0, 3, 0, 0], told.output
    assert "are free on a disk that has a log dir too; the export leaves 30720 to the broker" in told.output
    assert "or export to another disk" in told.output
    available, total = map(int, told.lines[-2].split())
    assert total // 20 <= available < total // 10


def test_damaged_partition_does_not_stop_the_others(small: SmallTier, exports: Exports, into: Path) -> None:
    for file in small.partition().path.glob("00000000000000000000.*"):
        file.unlink()
    log = next(path for path in small.installation.store_dir.rglob("*.log") if "/0/" in str(path))
    log.write_bytes(log.read_bytes()[:-1] + b"\0")
    done = exports.run("orders", "--json")
    assert done.exit_code == 1
    first, second = done.json()["partitions"]
    assert "is damaged" in first["problem"]
    assert first["next_offset"] < 20
    assert (second["problem"], second["records"]) == ("", 20)
    assert "orders-0 is not complete" in done.stderr
    assert all_offsets(into)[-1] == 19


def test_topic_that_was_made_anew_is_refused(small: SmallTier, exports: Exports, into: Path) -> None:
    exports.answer("orders")
    before = all_offsets(into)
    shutil.rmtree(small.partition(number=1).path)
    small.recreate()
    small.append(3)
    small.log_dir.write_checkpoints()
    done = exports.run("orders")
    assert done.exit_code == ExitCode.REFUSED
    assert "topic orders was made anew since an earlier run exported it" in done.stderr
    assert all_offsets(into) == before


def test_records_that_left_the_tier_before_they_were_exported_are_reported(
    small: SmallTier, exports: Exports, into: Path
) -> None:
    exports.answer("orders", "--to", "4")
    (into / ".tierd-export/journal").write_text(
        (into / ".tierd-export/journal").read_text().replace('"to":5', '"to":null')
    )
    (small.log_dir.path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 9\n")
    small.copy_as_it_is()
    done = exports.run("orders")
    assert done.exit_code == ExitCode.NO
    assert "offset 5 is below the log start 9" in done.stderr


def test_later_run_up_to_an_offset_that_was_reached_is_complete_when_retention_has_passed_it(
    small: SmallTier, exports: Exports, into: Path
) -> None:
    exports.answer("orders", "--to", "4")
    before = files(into)
    (small.log_dir.path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 9\n")
    small.copy_as_it_is()
    answer = exports.answer("orders", "--to", "4")
    assert [(each["next_offset"], each["records"], each["problem"]) for each in answer["partitions"]] == [
        (5, 0, "")
    ] * 2
    assert files(into) == before


@pytest.mark.parametrize(
    ("arguments", "exit_code", "problem"),
    [
        (["order"], 2, "no topic has a name that matches order; did you mean orders?"),
        (["("], 2, "is no regular expression"),
        (["orders", "--from", "1", "--from-time", "2"], 2, "exclude each other"),
        (["orders", "--partitioned-by", "day"], 2, "has to be some of topic, partition, date"),
        (["orders", "--bytes-per-file", "much"], 2, "much"),
        (["orders", "--format", "avro"], 2, "avro"),
        (["orders", "--from-time", "noon"], 2, "is no time"),
    ],
)
def test_arguments_without_a_meaning_are_refused(
    exports: Exports, into: Path, arguments: list[str], exit_code: int, problem: str
) -> None:
    done = exports.run(*arguments)
    assert done.exit_code == exit_code, done.output
    assert problem in " ".join(done.stderr.replace("│", " ").split())
    assert not into.exists()


def test_directories_that_have_something_else_are_refused(small: SmallTier, warm: WarmTierd, into: Path) -> None:
    into.mkdir()
    (into / "notes.txt").write_text("mine")
    for directory, problem in ((into, "is not empty"), (small.log_dir.path / "orders-0", "is in the log dir")):
        done = Exports(small, directory, warm).run("orders")
        assert done.exit_code == ExitCode.REFUSED
        assert problem in done.stderr
    assert [path.name for path in into.iterdir()] == ["notes.txt"]


def test_log_dir_that_the_configuration_names_by_a_link_is_refused(
    small: SmallTier, warm: WarmTierd, tmp_path: Path
) -> None:
    log_dir, link = small.log_dir.path, tmp_path / "data"
    link.symlink_to(log_dir)
    small.installation.configure({"log_dirs": [{"path": str(link), "owner": "kafka"}]})
    before = sorted(log_dir.rglob("*"))
    for directory in (log_dir / "export", link / "export"):
        done = Exports(small, directory, warm).run("orders")
        assert done.exit_code == ExitCode.REFUSED, done.output
        assert f"is in the log dir {log_dir}" in done.stderr
    assert sorted(log_dir.rglob("*")) == before


def test_sizes_of_files_bound_the_offsets_of_each(exports: Exports, into: Path) -> None:
    exports.answer("orders", "--rows-per-file", "8", "--partitioned-by", "topic,partition,date")
    assert [offsets(into / name) for name in files(into)[:4]] == [
        [*range(8)],
        [*range(8, 16)],
        [*range(16, 24)],
        [24, 25, 26],
    ]
    assert files(into)[0].startswith("topic=orders/partition=0/date=1970-01-01/orders-0-")


def test_terminal_shows_a_bar_that_fills(small: SmallTier, into: Path, warm: WarmTierd) -> None:
    terminal, standard_error = os.openpty()
    run = [str(TIERD), "export", "orders", *Exports(small, into, warm).arguments]
    ended = subprocess.run(run, stdout=subprocess.PIPE, stderr=standard_error, check=False)
    os.close(standard_error)
    said = b""
    with contextlib.suppress(OSError):  # which is the end of a terminal
        while part := os.read(terminal, 1 << 16):
            said += part
    os.close(terminal)
    assert ended.returncode == 0, said
    assert b"exporting: 47 records" in said
    assert b"100%" in said
