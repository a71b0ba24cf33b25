"""Objects of an attacker with the right to put: commands name them, continue, and stay within their memory."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_reading_commands import broker_deletes_everything_rolled
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation

MIB = 1 << 20
HUGE_BYTES = 600 * MIB


def objects(copied: Installation, suffix: str) -> list[Path]:
    """Return files of the store, in the order of their segments."""
    ids = [segment["segment_id"] for segment in copied.segments("orders-0")]
    found = [path for path in copied.store_dir.rglob(f"*{suffix}") if path.is_file()]
    return sorted(found, key=lambda path: next(n for n, each in enumerate(ids) if each in path.name))


def make_huge(path: Path) -> None:
    os.truncate(path, HUGE_BYTES)


def make_deep(path: Path) -> None:
    path.write_bytes(b'{"a":' * 3_000)


attacks = pytest.mark.parametrize(
    ("attack", "problem"),
    [(make_huge, "no manifest has more than"), (make_deep, "nested too deeply")],
    ids=["huge", "deep"],
)


@attacks
def test_cat_names_an_oversized_manifest_and_reads_the_other_segments(
    copied: Installation, log_dir: LogDirWriter, attack: Callable[[Path], None], problem: str
) -> None:
    manifest = objects(copied, ".manifest")[0]
    broker_deletes_everything_rolled(log_dir)
    attack(manifest)
    ended = copied.tierd("cat", "orders-0")
    assert ended.exit_code == 1
    assert "".join(ended.stderr.split()).count(manifest.name) == 1
    assert problem in " ".join(ended.stderr.split())
    assert [record["offset"] for record in copied.cat("orders-0", "--from", "4")][:8] == list(range(4, 12))


@attacks
def test_verify_names_an_oversized_manifest_and_checks_the_other_segments(
    copied: Installation, attack: Callable[[Path], None], problem: str
) -> None:
    manifests, logs = objects(copied, ".manifest"), objects(copied, ".log")
    attack(manifests[0])
    logs[2].write_bytes(b"?")
    ended = copied.tierd("verify", "--json")
    assert ended.exit_code == 1
    damaged, size = (json.loads(line) for line in ended.stdout.splitlines())
    assert (damaged["kind"], size["kind"]) == ("damaged-manifest", "wrong-size")
    assert manifests[0].name in damaged["what"]
    assert problem in damaged["what"]


@attacks
def test_rebuild_names_an_oversized_manifest_and_restores_the_other_segments(
    copied: Installation, attack: Callable[[Path], None], problem: str
) -> None:
    manifest = objects(copied, ".manifest")[1]
    attack(manifest)
    for file in copied.state_dir.glob("metadata.db*"):
        file.unlink()
    ended = copied.tierd("rebuild-metadata", "--json")
    assert manifest.name in ended.stdout
    assert problem in ended.stdout
    assert [segment["start_offset"] for segment in copied.segments("orders-0")] == [0, 8]


@pytest.mark.parametrize("suffix", [".manifest", ".indexes", ".log"])
def test_cat_of_a_segment_with_a_huge_object_needs_no_more_memory(
    copied: Installation, log_dir: LogDirWriter, suffix: str
) -> None:
    broker_deletes_everything_rolled(log_dir)
    command = [str(TIERD), "cat", "orders-0", "--config", str(copied.config_file)]
    sound_bytes = memory_of(command)
    make_huge(objects(copied, suffix)[0])
    assert memory_of(command) < sound_bytes + 128 * MIB


def memory_of(command: list[str]) -> int:
    """Run a command to its end; return the largest resident memory that it had, in bytes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * 1024
