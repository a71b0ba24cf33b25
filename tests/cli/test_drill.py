"""``tierd drill``: partitions of the tier restored into scratch, proven, removed, and remembered."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.log_dirs import CLUSTER_ID, LogDirWriter
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tests.services.waiting import is_alive, wait_until
from tierd.restore import held_scratch

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def scratch(tierd: Installation) -> Path:
    return tierd.state_dir / "drill"


def left(tierd: Installation) -> list[str]:
    return sorted(path.name for path in scratch(tierd).iterdir())


def drilled(tierd: Installation, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
    ended = tierd.tierd("drill", *arguments, "--json")
    assert ended.exit_code == exit_code, ended.output
    (answer,) = ended.json()
    return dict(answer)


def with_command(tierd: Installation, script: str, **settings: str) -> None:
    tierd.configure({"drill": {"command": [sys.executable, "-c", script], **settings}})


def test_drill_proves_the_partition_and_leaves_nothing_in_scratch(copied: Installation) -> None:
    ended = copied.tierd("drill")
    assert ended.exit_code == 0, ended.output
    assert "proven orders-0: offsets 0 to 11" in ended.stdout
    assert "restored, loaded, compared" in ended.stdout
    assert "1 of 1 partitions are proven to come back" in ended.stdout
    assert left(copied) == ["lock"]


def test_every_printed_command_runs(copied: Installation) -> None:
    section = OPERATIONS.read_text().partition("\n## Drills\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```bash\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert [arguments[0] for arguments in commands] == ["drill"] * 5
    for arguments in commands:
        ended = copied.tierd(*arguments)
        assert ended.exit_code == 0, f"{shlex.join(arguments)}: {ended.output}"
        assert "orders-0" in ended.stdout
    (kept,) = (name for name in left(copied) if name.startswith("kept-"))
    assert (scratch(copied) / kept).is_dir()


def test_drill_changes_neither_the_log_dir_nor_the_tier(copied: Installation, tmp_path: Path) -> None:
    def content() -> dict[str, bytes]:
        roots = (tmp_path / "kafka", copied.store_dir)
        return {str(path): path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()}

    before = content()
    assert drilled(copied)["outcome"] == "proven"
    assert content() == before


def test_answer_has_what_was_proven_when_and_how(copied: Installation) -> None:
    answer = drilled(copied, "orders-0")
    assert (answer["partition"], answer["outcome"], answer["trigger"]) == ("orders-0", "proven", "command")
    assert (answer["log_start_offset"], answer["end_offset"], answer["segments"]) == (0, 12, 3)
    assert answer["checks"] == ["restored", "loaded", "compared"]
    assert answer["samples"] == 3
    assert answer["began_ms"] <= answer["ended_ms"]
    assert (answer["is_from_bucket"], answer["problem"], answer["kept"]) == (False, "", None)


@pytest.fixture
def two(tierd: Installation, log_dir: LogDirWriter) -> Installation:
    """Return the installation with segments of two partitions in the tier."""
    payments = log_dir.add_partition("payments")
    payments.append([b"paid"])
    payments.roll()
    payments.append([b"open"])
    log_dir.write_checkpoints()
    ended = tierd.tierd("copy", "--once")
    assert ended.exit_code == 0, ended.output
    return tierd


_SEES_BOTH = """
import os, pathlib, sys
(log_dir,) = map(pathlib.Path, sys.argv[1:])
lines = pathlib.Path(os.environ["TIERD_DRILL_PARTITIONS"]).read_text().splitlines()
names = sorted(line.split("\\t")[0] for line in lines)
assert names == ["orders-0", "payments-0"], names
assert all((log_dir / name).is_dir() for name in names)
assert "TIERD_DRILL_PARTITION" not in os.environ
"""


def test_drill_of_a_broker_restores_all_partitions_into_one_log_dir(two: Installation) -> None:
    with_command(two, _SEES_BOTH)
    ended = two.tierd("drill", "--broker", "--json")
    assert ended.exit_code == 0, ended.output
    answers = {each["partition"]: each for each in ended.json()}
    assert {name: each["outcome"] for name, each in answers.items()} == {"orders-0": "proven", "payments-0": "proven"}
    assert {tuple(each["checks"]) for each in answers.values()} == {("restored", "loaded", "compared", "command")}
    assert len({each["run_id"] for each in answers.values()}) == 1
    assert left(two) == ["lock"]


def test_damaged_partition_of_a_broker_is_named_and_the_command_does_not_run(two: Installation) -> None:
    with_command(two, "raise SystemExit(1)")
    damaged = max(path for path in two.store_dir.rglob("*.log") if "payments" in str(path))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    ended = two.tierd("drill", "--broker", "--json")
    assert ended.exit_code == 1, ended.output
    answers = {each["partition"]: each for each in ended.json()}
    assert (answers["payments-0"]["outcome"], answers["orders-0"]["outcome"]) == ("failed", "proven")
    assert answers["orders-0"]["checks"] == ["restored", "loaded", "compared"]
    assert left(two) == ["lock"]


def test_command_that_refuses_the_log_dir_of_a_broker_fails_every_partition(two: Installation) -> None:
    with_command(two, "raise SystemExit(7)")
    ended = two.tierd("drill", "--broker", "--keep", "--json")
    assert ended.exit_code == 1, ended.output
    answers = ended.json()
    assert {each["problem"] for each in answers} == {"drill.command ended with exit code 7"}
    (kept,) = {each["kept"] for each in answers}
    assert (Path(kept) / "log-dir" / "payments-0").is_dir()


def test_list_of_results_is_also_printed_as_one_object(copied: Installation) -> None:
    ended = copied.tierd("drill", "--json-object")
    assert ended.exit_code == 0, ended.output
    assert (ended.json()["complete"], len(ended.json()["items"])) == (True, 1)


def test_history_lists_past_drills(copied: Installation) -> None:
    assert "no partition was drilled yet" in copied.tierd("drill", "--history").stdout
    answers = [drilled(copied), drilled(copied)]
    listed = copied.tierd("drill", "--history", "--json").json()
    assert listed == [{name: value for name, value in each.items() if name != "kept"} for each in answers]
    table = copied.tierd("drill", "--history")
    assert table.exit_code == 0
    assert table.stdout.count("proven") == 2


def test_kept_log_dir_stays_and_no_later_drill_removes_it(copied: Installation) -> None:
    kept = Path(drilled(copied, "orders-0", "--keep")["kept"])
    drilled(copied)
    assert left(copied) == [kept.name, "lock"]
    assert (kept / "log-dir" / "orders-0" / "00000000000000000000.log").stat().st_size
    assert (kept / "log-dir" / "recovery-point-offset-checkpoint").read_text().split() == [
        "0",
        "1",
        "orders",
        "0",
        "12",
    ]


def test_drill_needs_neither_state_nor_log_dir_of_the_host(copied: Installation, tmp_path: Path) -> None:
    shutil.rmtree(copied.state_dir)
    shutil.rmtree(tmp_path / "kafka")
    answer = drilled(copied, "--cluster-id", CLUSTER_ID)
    assert (answer["outcome"], answer["is_from_bucket"], answer["end_offset"]) == ("proven", True, 12)


@pytest.mark.parametrize("suffix", [".log", ".manifest"])
def test_damaged_object_fails_the_drill_and_is_named(copied: Installation, suffix: str) -> None:
    damaged = max(copied.store_dir.rglob(f"*{suffix}"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    ended = copied.tierd("drill")
    assert ended.exit_code == 1, ended.output
    assert "failed orders-0: " in ended.stdout
    assert damaged.stem in ended.stdout
    assert "0 of 1 partitions are proven" in ended.stdout
    assert left(copied) == ["lock"]
    (line,) = copied.tierd("drill", "--history", "--json").json()
    assert line["outcome"] == "failed"
    assert damaged.stem in line["problem"]


def test_damaged_indexes_are_built_anew_and_counted(copied: Installation) -> None:
    damaged = max(copied.store_dir.rglob("*.indexes"))
    damaged.write_bytes(bytes(damaged.stat().st_size))
    answer = drilled(copied)
    assert (answer["outcome"], answer["rebuilt_indexes"]) == ("proven", 1)
    assert "indexes of 1 segments built anew" in copied.tierd("drill").stdout


def test_lost_object_fails_the_drill_and_is_named(copied: Installation) -> None:
    lost = min(copied.store_dir.rglob("*.log"))
    lost.unlink()
    answer = drilled(copied, exit_code=1)
    assert answer["outcome"] == "failed"
    assert lost.stem in answer["problem"]


def test_command_decides_on_the_restored_log_dir(copied: Installation) -> None:
    script = (
        "import os,pathlib,sys; d = pathlib.Path(sys.argv[1]); assert (d / sys.argv[2]).is_dir();"
        "assert not (d / '.kafka_cleanshutdown').exists(); print('end', os.environ['TIERD_DRILL_END_OFFSET']);"
        "topic_id = (d / sys.argv[2] / 'partition.metadata').read_text().split()[-1];"
        "assert os.environ['TIERD_DRILL_TOPIC_ID'] == topic_id"
    )
    with_command(copied, script)
    assert drilled(copied)["checks"] == ["restored", "loaded", "compared", "command"]
    with_command(copied, f"{script}; print('password=hunter2'); sys.exit(3)")
    ended = copied.tierd("drill")
    assert ended.exit_code == 1, ended.output
    assert "failed orders-0: drill.command ended with exit code 3" in ended.stdout
    assert "| end 12" in ended.stdout
    assert "| password=********" in ended.stdout
    assert left(copied) == ["lock"]


def test_command_that_does_not_end_is_ended(copied: Installation) -> None:
    with_command(copied, "import time; time.sleep(600)", command_timeout="500ms")
    assert drilled(copied, exit_code=1)["problem"] == "drill.command did not end in 0.5 s"


def test_partition_above_the_limit_is_skipped_unless_it_is_named(copied: Installation) -> None:
    copied.configure({"drill": {"max_bytes": "10B"}})
    skipped = drilled(copied, exit_code=1)
    assert skipped["outcome"] == "skipped"
    assert "drill.max_bytes is 10" in skipped["problem"]
    assert drilled(copied, "orders-0")["outcome"] == "proven"
    assert drilled(copied, "--all")["outcome"] == "proven"


def test_partition_that_the_tier_does_not_know_is_a_usage_error(copied: Installation) -> None:
    ended = copied.tierd("drill", "orders-7")
    assert ended.exit_code == 2, ended.output
    assert "has no partition orders-7" in ended.stderr


@pytest.mark.parametrize(
    "arguments", [("--history", "orders-0"), ("--history", "--all"), ("--history", "--keep"), ("--all", "orders-0")]
)
def test_arguments_that_contradict_each_other_are_usage_errors(tierd: Installation, arguments: tuple[str, ...]) -> None:
    assert tierd.tierd("drill", *arguments).exit_code == 2


def test_second_drill_at_the_same_time_is_refused(copied: Installation) -> None:
    copied.state_dir.chmod(0o700)
    with held_scratch(scratch(copied)):
        ended = copied.tierd("drill")
    assert ended.exit_code == 4, ended.output
    assert "a drill of process" in ended.stderr
    assert drilled(copied)["outcome"] == "proven"


def test_store_that_is_away_is_no_result(copied: Installation) -> None:
    away = {"bucket": "tier", "endpoint_url": "http://127.0.0.1:9", "access_key_id": "a", "secret_access_key": "b"}
    copied.configure({"remote": {"backend": "s3", "s3": away, "retry": {"attempts": 1}}})
    ended = copied.tierd("drill")
    assert ended.exit_code == 3, ended.output
    assert copied.tierd("drill", "--history", "--json").json() == []


NEVER_ENDS = (
    "import os, pathlib, signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "pathlib.Path('began.tmp').write_text(f'{os.getpid()} {child.pid}')\n"
    "pathlib.Path('began.tmp').rename('began')\n"
    "time.sleep(600)\n"
)


def test_killed_drill_ends_its_command_and_leaves_its_scratch_to_the_next_one(copied: Installation) -> None:
    with_command(copied, NEVER_ENDS)
    command = [str(TIERD), "drill", "--config", str(copied.config_file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: any(scratch(copied).glob("*/began")), what="the command to begin", deadline_s=300)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    (began,) = scratch(copied).glob("*/began")
    pids = [int(pid) for pid in began.read_text().split()]
    try:
        wait_until(lambda: not any(map(is_alive, pids)), what="the command and its child to end", deadline_s=60)
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)
    assert left(copied) == ["drill-1", "lock"]
    with_command(copied, "raise SystemExit(0)")
    assert drilled(copied)["outcome"] == "proven"
    assert left(copied) == ["lock"]
    assert [line["outcome"] for line in copied.tierd("drill", "--history", "--json").json()] == ["proven"]
