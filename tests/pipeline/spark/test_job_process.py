"""Job as a process of its own, as the daemon starts it; and its end when the daemon ends."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.spark.job_lab import JobLab
from tests.pipeline.spark.test_job import COMPACT, Log, contents, fill, latest
from tierd.pipeline.committing import CompactionLeader
from tierd.pipeline.committing.messages import Begun
from tierd.pipeline.jobs.exit_codes import JobExit

DEADLINE_S = 300.0


async def test_job_process_carries_out_an_order_and_logs_json(tmp_path: Path) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=4, keys=7)
    async with log.copied() as lab:
        size_bytes = sum(row.size_bytes for row in lab.rows("orders-0"))
        ended: list[subprocess.CompletedProcess[str]] = []
        found = await lab.lead({"orders-0": COMPACT}, lambda: ended.append(run(lab)))
        assert ended[0].returncode == JobExit.DONE, ended[0].stderr
        events = [json.loads(line) for line in ended[0].stderr.splitlines() if line.startswith("{")]
        of_run = [event for event in events if event["event"].startswith("run_")]
        assert [event["event"] for event in of_run] == ["run_begins", "run_ends"]
        assert of_run[-1]["fetched_bytes"] >= 2 * size_bytes, "keys and rewriting have read every input"
        assert (found.committed, found.stage) == (found.groups, "done")
        assert dict(await contents(lab, "orders-0")) == latest(range(40), 7)
        assert not list((tmp_path / "state" / "pipeline").iterdir()), (
            "the scratch files of Spark are removed with the session"
        )


async def test_job_whose_leader_hangs_up_ends_at_once_and_changes_no_further_segment(tmp_path: Path) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=4, keys=7)
    async with log.copied() as lab:
        before = lab.finished("orders-0")
        ended: list[subprocess.CompletedProcess[str]] = []

        async def hang_up(self: CompactionLeader, index: int, groups: object) -> Begun:
            raise ConnectionResetError

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(CompactionLeader, "begin", hang_up)
            await lab.lead({"orders-0": COMPACT}, lambda: ended.append(run(lab)))
        assert ended[0].returncode == JobExit.LEADER_GONE, ended[0].stderr
        assert lab.finished("orders-0") == before


async def test_job_without_a_leader_or_a_configuration_fails_with_its_own_exit_code(tmp_path: Path) -> None:
    async with Log(tmp_path, ("orders",)).copied() as lab:
        lab.command()
        for file, wanted in (("tierd.yaml", JobExit.LEADER_GONE), ("none.yaml", JobExit.USAGE)):
            command = [sys.executable, "-m", "tierd.pipeline.jobs", *lab.arguments(tmp_path / file)]
            ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            assert ended.returncode == wanted, ended.stderr
            assert json.loads(ended.stderr.splitlines()[-1])["event"] == "run_failed"


def run(lab: JobLab) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        lab.command(master="local[2]"), capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
