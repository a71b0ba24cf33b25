"""Start and end of spark-submit, replaced in these tests by a script that prints its arguments."""

import asyncio
import gc
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from tests.fakes.eventually import eventually
from tests.services.waiting import is_alive, wait_until
from tierd.config import PipelineSettings
from tierd.errors import PipelineError, SparkMissingError, install_extra
from tierd.pipeline.running.requirements import SparkInstallation, find_spark, java_version
from tierd.pipeline.running.spark_process import SparkProcess, last_lines, submit_command


def installed(folder: Path, script: str) -> SparkInstallation:
    submit = folder / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
    return SparkInstallation(folder / "spark", None, 17)


def process(folder: Path, script: str, **settings: object) -> SparkProcess:
    return SparkProcess(
        PipelineSettings.model_validate(settings),
        installed(folder, script),
        config_file=folder / "tierd.yaml",
        scratch=folder / "scratch",
    )


async def test_exit_code_and_output_are_those_of_the_job(tmp_path: Path) -> None:
    job = process(tmp_path, 'echo "hello $PYSPARK_PYTHON"; echo trouble >&2; exit 7')
    assert await job.run(tmp_path / "socket", tmp_path / "log", stop_timeout_s=1) == 7
    assert "hello /" in (tmp_path / "log").read_text()
    assert last_lines(tmp_path / "log", lines=1) == "trouble"


@pytest.mark.parametrize("in_the_way", ["scratch", "log"])
async def test_unwritable_file_fails_the_run_with_a_named_path(tmp_path: Path, in_the_way: str) -> None:
    """A full disk is no bug, and must not end the daemon."""
    job = process(tmp_path, "exit 0")
    if in_the_way == "scratch":
        (tmp_path / "scratch").write_text("a file")
    else:
        (tmp_path / "log").mkdir()
    with pytest.raises(PipelineError, match=in_the_way):
        await job.run(tmp_path / "socket", tmp_path / "log", stop_timeout_s=1)


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")  # the event loop has no time for that either
def test_job_is_killed_although_its_stop_is_cancelled(tmp_path: Path) -> None:
    """The event loop ends while the job is asked to stop, and cancels the task that waits for the stop."""
    script = "trap '' TERM; echo $$ > pid.new; mv pid.new pid; tail -f /dev/null"
    job = process(tmp_path, f"cd {tmp_path}; {script}")

    async def hurry() -> None:
        running = asyncio.create_task(job.run(tmp_path / "socket", tmp_path / "log", stop_timeout_s=60))
        await eventually((tmp_path / "pid").exists, what="the job")
        running.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait({running})

    asyncio.run(hurry())
    gc.collect()  # a warning belongs to this test, and to no other
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(pid), what="the job's end", deadline_s=60)


def test_last_lines_of_a_java_exception_are_its_message_without_frames(tmp_path: Path) -> None:
    trace = "\n".join(f"\tat java.base/java.lang.Thread.run{i}(Thread.java:{i})" for i in range(100))
    (tmp_path / "log").write_text(f"Exception in thread main: no such file\n{trace}\n\t... 15 more\n")
    assert last_lines(tmp_path / "log") == "Exception in thread main: no such file"


def test_last_lines_of_a_job_are_reported_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("refused by http://user:hunter2@proxy:3128/\nspark.hadoop.fs.secret.key=hunter2\n")
    told = last_lines(tmp_path / "log")
    assert "refused by http://" in told
    assert "hunter2" not in told


async def test_job_gets_the_paths_of_leader_and_configuration(tmp_path: Path) -> None:
    job = process(tmp_path, 'echo "$@"')
    await job.run(tmp_path / "socket", tmp_path / "log", stop_timeout_s=1)
    said = (tmp_path / "log").read_text()
    assert f"--leader {tmp_path / 'socket'} --config {tmp_path / 'tierd.yaml'}" in said


async def test_spark_settings_are_in_a_file_for_its_owner_only_and_not_in_the_arguments(tmp_path: Path) -> None:
    job = process(
        tmp_path, 'echo "$@"; cat "$2"', spark_conf={"spark.hadoop.secret": "a b=c\\dü"}, nice=0, io_class="none"
    )
    await job.run(tmp_path / "socket", tmp_path / "log", stop_timeout_s=1)
    arguments, *properties = (tmp_path / "log").read_text().splitlines()
    assert "secret" not in arguments
    assert "spark.hadoop.secret=a\\ b\\=c\\\\d\\u00fc" in properties
    assert stat.S_IMODE((tmp_path / "scratch" / "spark.properties").stat().st_mode) == 0o600


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_job_and_its_log_are_accessible_to_the_owner_only_under_any_umask(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The daemon runs on uvloop."""
    job = process(tmp_path, 'umask; echo "workers $TIERD_WORKER_UMASK"; echo "address $SPARK_LOCAL_IP"')
    before = os.umask(0o022)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            assert runner.run(job.run(tmp_path / "socket", tmp_path / "log", stop_timeout_s=1)) == 0
    finally:
        os.umask(before)
    assert (tmp_path / "log").read_text().splitlines() == ["0077", "workers 22", "address 127.0.0.1"]
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


async def test_secret_of_cluster_is_in_neither_arguments_nor_environment(tmp_path: Path) -> None:
    job = process(
        tmp_path, 'echo "$@"; env; cat "$2"', master="spark://h:1", authenticate_secret="hush", nice=0, io_class="none"
    )
    await job.run(tmp_path / "socket", tmp_path / "log", stop_timeout_s=1)
    said = [line for line in (tmp_path / "log").read_text().splitlines() if "hush" in line]
    assert said == ["spark.authenticate.secret=hush"], "the file that only its owner can read has it"


async def test_cancelled_job_is_ended_with_its_child_processes(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = process(
        tmp_path,
        f'trap "" TERM; sh -c \'trap "" TERM; sleep 1000 & wait\' & echo $$ $! > {pids}.new; '
        f"mv {pids}.new {pids}; wait; wait",
    )
    running = asyncio.create_task(job.run(tmp_path / "socket", tmp_path / "log", stop_timeout_s=0.05))
    await eventually(pids.exists, what="the job to start")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    pids_started = [int(pid) for pid in pids.read_text().split()]
    await eventually(lambda: not any(map(is_alive, pids_started)), what="all of the job to be gone")


async def test_workers_that_outlive_the_job_are_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = process(tmp_path, f"sleep 1000 & echo $! > {pids}")
    assert await job.run(tmp_path / "socket", tmp_path / "log", stop_timeout_s=1) == 0
    await eventually(lambda: not is_alive(int(pids.read_text())), what="the worker to be gone")


async def test_a_command_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    job = process(tmp_path, "exit 0", nice=0, io_class="none")
    (tmp_path / "spark" / "bin" / "spark-submit").unlink()
    with pytest.raises(PipelineError, match="spark-submit cannot be run"):
        await job.run(tmp_path / "socket", tmp_path / "log", stop_timeout_s=1)


def test_job_has_the_configured_nice_and_io_class(tmp_path: Path) -> None:
    spark = SparkInstallation(tmp_path, None, 17)

    def command(**settings: object) -> str:
        found = submit_command(
            PipelineSettings.model_validate(settings),
            spark,
            properties=tmp_path / "p",
            socket=tmp_path / "s",
            config_file=tmp_path / "c",
        )
        return " ".join(Path(part).name if os.sep in part else part for part in found)

    assert command(nice=7, io_class="idle").startswith("nice -n 7 ionice -c 3 spark-submit ")
    assert command(nice=7, io_class="best-effort").startswith("nice -n 7 ionice -c 2 -n 7 spark-submit ")
    assert command(nice=0, io_class="none").startswith("spark-submit ")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_version_is_parsed_from_the_output_of_java(text: str, version: int | None) -> None:
    assert java_version(text) == version


async def test_a_java_that_is_too_old_or_missing_is_refused(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    with pytest.raises(SparkMissingError, match="cannot be run"):
        await find_spark(tmp_path)
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(SparkMissingError, match="is Java 11; Spark needs 17"):
        await find_spark(tmp_path)


async def test_java_that_the_unit_does_not_let_run_is_reported_with_its_own_message(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Failed to mark memory page as executable' >&2\nexit 1\n")
    java.chmod(0o755)
    with pytest.raises(SparkMissingError, match="Failed to mark memory page as executable") as caught:
        await find_spark(tmp_path)
    assert "tierd-spark.conf" in caught.value.remedy


async def test_remedy_for_missing_pyspark_is_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkMissingError, match="pyspark is not installed") as caught:
        await find_spark(None)
    assert caught.value.remedy == install_extra("spark")


async def test_remedy_for_missing_java_is_its_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkMissingError, match="no Java") as caught:
        await find_spark(None)
    assert "install Java 17" in caught.value.remedy


async def test_installed_spark_is_found() -> None:
    spark = await find_spark(None)
    assert spark.java_version >= 17
    assert spark.submit.is_file()
