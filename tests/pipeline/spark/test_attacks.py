"""Local users against a session of Spark: its ports, its files, its arguments."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from tests.pipeline.spark.attacked import Attack, attack_ports, files_with, java_of, listening, open_to_others
from tests.pipeline.spark.job_lab import JobLab
from tests.pipeline.spark.standalone_cluster import standalone_cluster
from tests.pipeline.spark.test_job import COMPACT, ENCRYPTED, OLD_KEY, Log, contents, fill, latest
from tests.scenarios.job_processes import job_processes
from tests.services.brief_java import OPTIONS, SPARK_CONF
from tierd.config import PipelineSettings, load_config
from tierd.config.spark_protection import PROTECTION
from tierd.pipeline.committing import CompactionLeader
from tierd.pipeline.committing.messages import Begun
from tierd.pipeline.jobs.exit_codes import JobExit
from tierd.pipeline.jobs.spark_session_settings import spark_environment, spark_settings
from tierd.pipeline.running.requirements import find_spark
from tierd.pipeline.running.spark_process import SparkProcess

KEY = OLD_KEY["key"]
_APPLICATIONS = "/api/v1/applications"
ON_CLUSTER = {
    "spark.cores.max": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": OPTIONS,
    "spark.executor.extraJavaOptions": OPTIONS,
    "spark.pyspark.python": sys.executable,
}
PLAIN = {
    **SPARK_CONF,
    "spark.app.name": "attacked",
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def test_session_without_protection_reveals_a_broadcast_to_another_user(tmp_path: Path) -> None:
    """Show that the attack succeeds on an unprotected session."""
    with bare_session(tmp_path, PLAIN) as pid:
        found = {each.attack: each for each in attack_ports(sorted(listening(pid))) if each.succeeded}
        assert {"read_blocks", "call_endpoint"} <= set(found)
        assert KEY.encode() in found["read_blocks"].answer
        assert files_with(tmp_path / "local", KEY.encode()), "the broadcast lies in a file as it is"
    if os.geteuid() == 0:
        assert found["read_blocks"].uid != 0


def test_pages_of_local_session_listen_for_this_host_and_mask_secrets(tmp_path: Path) -> None:
    asked = {"spark.ui.enabled": "true", "spark.hadoop.fs.s3a.secret.key": "of-the-bucket", "spark.my.account.key": KEY}
    settings = spark_settings(PipelineSettings.model_validate({"spark_conf": asked}), tmp_path / "local")
    with bare_session(tmp_path, settings, **spark_environment("local[2]")) as pid:
        ports = listening(pid)
        assert all(ports.values())
        (port,) = [port for port in ports if page_of(port, _APPLICATIONS)]
        (application,) = json.loads(page_of(port, _APPLICATIONS))
        environment = page_of(port, f"{_APPLICATIONS}/{application['id']}/environment")
        assert b"spark.my.account.key" in environment
        assert b"of-the-bucket" not in environment
        assert KEY.encode() not in environment
        assert not [each for each in attack_ports(sorted(ports)) if each.succeeded]
        assert not files_with(tmp_path / "local", KEY.encode())


async def test_running_job_gives_no_data_to_another_user(tmp_path: Path) -> None:
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=4, keys=7)
    attacks: list[Attack] = []
    seen: dict[str, object] = {}
    async with log.copied(**ENCRYPTED) as lab:

        def look() -> None:
            java = java_of(os.getpid(), said=str(lab.scratch))
            seen["ports"] = listening(java.pid)
            seen["open"] = open_to_others(lab.scratch / "run")
            seen["files"] = files_with(lab.scratch / "run", KEY.encode())
            seen["arguments"] = [each.command for each in job_processes(os.getpid()) if KEY in each.command]
            attacks.extend(attack_ports(sorted(listening(java.pid))))

        ended: list[int] = []
        with at_begin(look):
            await lab.lead({"orders-0": COMPACT}, lambda: ended.append(asyncio.run(submitted(lab))))
            assert ended == [JobExit.DONE], (tmp_path / "log").read_text()
        assert dict(await contents(lab, "orders-0")) == latest(range(40), 7)
        assert len({path.stat().st_mode for path in (lab.scratch / "bucket").rglob("*.log")}) == 1, "as copies have it"
    assert not [each for each in attacks if each.succeeded]
    assert {each.attack for each in attacks} == {
        "read_blocks",
        "call_endpoint",
        "read_chunk",
        "read_stream",
        "call_java",
    }
    assert not [each for each in attacks if KEY.encode() in each.answer]
    ports = seen.pop("ports")
    assert isinstance(ports, dict)
    assert len(ports) >= 3, "driver, block manager, py4j"
    assert all(ports.values()), "no other host reaches any of the ports"
    assert seen == {"open": [], "files": [], "arguments": []}


async def test_job_on_a_standalone_cluster_gives_no_data_and_shows_no_secret(tmp_path: Path) -> None:
    """Attack the driver and an executor that is a process of its own."""
    secret = "0f3b2c5d7e9a48b1"
    log = Log(tmp_path, ("orders",))
    fill(log.partitions["orders-0"], segments=4, keys=7)
    attacks: list[Attack] = []
    commands: list[str] = []
    with standalone_cluster(tmp_path / "cluster", {**PROTECTION, "spark.authenticate.secret": secret}) as master:
        async with log.copied(**ENCRYPTED) as lab:

            def look() -> None:
                driver = java_of(os.getpid(), said=str(lab.scratch / "tierd.yaml"))
                executor = java_of(os.getpid(), said="CoarseGrainedExecutorBackend")
                commands.extend(each.command for each in job_processes(os.getpid()))
                attacks.extend(attack_ports(sorted({*listening(driver.pid), *listening(executor.pid)})))

            ended: list[int] = []
            with at_begin(look):
                job = {"master": master, "authenticate_secret": secret, "spark_conf": ON_CLUSTER}
                await lab.lead({"orders-0": COMPACT}, lambda: ended.append(asyncio.run(submitted(lab, **job))))
                assert ended == [JobExit.DONE], (tmp_path / "log").read_text()
            assert dict(await contents(lab, "orders-0")) == latest(range(40), 7)
    assert attacks
    assert not [each for each in attacks if each.succeeded or KEY.encode() in each.answer]
    assert not [command for command in commands if secret in command or KEY in command]


@contextmanager
def at_begin(look: Callable[[], None]) -> Iterator[None]:
    """Call ``look`` in a thread when the job begins its first group: broadcast and workers exist then."""
    begin = CompactionLeader.begin
    looked: list[bool] = []

    async def look_and_begin(self: CompactionLeader, index: int, groups: Sequence[int]) -> Begun:
        if not looked:
            looked.append(True)
            await asyncio.to_thread(look)
        return await begin(self, index, groups)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CompactionLeader, "begin", look_and_begin)
        yield
    assert looked


def page_of(port: int, path: str) -> bytes:
    """Return the answer of a port to a browser; empty for another protocol."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    except (OSError, HTTPException):
        return b""
    finally:
        connection.close()


async def submitted(lab: JobLab, **pipeline: object) -> int:
    """Have spark-submit run the job, as the daemon does."""
    lab.command(**{"master": "local[2]", "executor_memory": "512MiB", "nice": 0, "io_class": "none", **pipeline})
    file = lab.scratch / "tierd.yaml"
    config = load_config(file, {})
    spark = await find_spark(None)
    process = SparkProcess(config.pipeline, spark, config_file=file, scratch=lab.socket.parent / "spark")
    return await process.run(lab.socket, lab.scratch / "log", stop_timeout_s=15)


@contextmanager
def bare_session(root: Path, settings: Mapping[str, str], **environment: str) -> Iterator[int]:
    """Run a session in a process of its own that has broadcast the key; yield the process id of its Java."""
    given = {"settings": {**settings, "spark.local.dir": str(root / "local")}, "text": KEY}
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    with (root / "session.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.spark.bare_session"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=own | environment | {"PYSPARK_PYTHON": sys.executable},
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, (root / "session.log").read_text()
        yield int(line)
        process.stdin.write("\n")
        process.stdin.flush()
        process.wait()
