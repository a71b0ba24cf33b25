"""Daemon as a process: signals, reloads, systemd, and failures of its parts."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter, SegmentShape, write_log_dir
from tests.fakes.manual_clock import ManualClock
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tests.services.waiting import wait_until
from tierd.app.daemon import daemon as daemon_module
from tierd.app.daemon.daemon import Daemon
from tierd.app.daemon.systemd_notifier import SystemdNotifier
from tierd.app.engine.compose import Engine, compose
from tierd.app.engine.deployment import Deployment
from tierd.app.spark.build_pipeline import Pipeline, build_pipeline
from tierd.config import TierdConfig, load_config
from tierd.errors import ForeignTierError
from tierd.model import LogSegmentData, RemoteLogSegmentMetadata
from tierd.pipeline import PipelineScheduler, RunHistory, RunLimits, RunProgress
from tierd.pipeline.running.run_history import RunOutcome
from tierd.remote import SegmentStorage
from tierd.schedule import Schedule
from tierd.tiering import RemoteLogManager, Supervisor, Tiering

SHAPE = SegmentShape(batches=60, records_per_batch=8, value_bytes=1000)  # about half a megabyte a segment
SEGMENT_RECORDS = 60 * 8


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDirWriter:
    return write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=3, shape=SHAPE)


@pytest.fixture
def tierd(tmp_path: Path, log_dir: LogDirWriter) -> Installation:
    return Installation(tmp_path / "tierd", [log_dir.path])


@pytest.fixture
def slow(tierd: Installation) -> Installation:
    """Return an installation with a store so slow that one segment takes some seconds."""
    tierd.configure({"copy": {"max_bytes_per_second": "200kB"}})
    return tierd


def states(tierd: Installation) -> list[str]:
    return [segment["state"] for segment in tierd.segments("synthetic-0")]


def test_copy_that_exceeds_the_shutdown_timeout_is_cancelled_and_repeated_by_the_next_run(slow: Installation) -> None:
    slow.configure({"shutdown_timeout": "100ms", "copy": {"max_bytes_per_second": "1kB"}})
    daemon = slow.daemon()
    daemon.start()
    daemon.wait_until(lambda: "COPY_SEGMENT_STARTED" in states(slow), what="a copy under way")
    assert daemon.stop() == 0, daemon.log_tail()
    assert "COPY_SEGMENT_FINISHED" not in states(slow)
    assert "copies_cancelled" in daemon.log_tail()
    slow.configure({"copy": {"max_bytes_per_second": "unlimited"}})
    with slow.daemon() as again:
        again.wait_copied({"synthetic-0": 3 * SEGMENT_RECORDS - 1})
        again.wait_until(lambda: set(states(slow)) == {"COPY_SEGMENT_FINISHED"}, what="the sweep of the cancelled copy")
    verified = slow.tierd("verify", "--deep")
    assert verified.exit_code == 0, verified.output


@pytest.mark.parametrize(("second", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_second_signal_ends_the_daemon_at_once(slow: Installation, second: signal.Signals, exit_code: int) -> None:
    slow.configure({"copy": {"max_bytes_per_second": "1kB"}})
    daemon = slow.daemon()
    daemon.start()
    daemon.wait_until(lambda: "COPY_SEGMENT_STARTED" in states(slow), what="a copy under way")
    daemon.send_signal(signal.SIGTERM)
    daemon.wait_until(lambda: "stopping" in daemon.log_tail(), what="the orderly stop")
    daemon.send_signal(second)
    assert daemon.wait_end() == exit_code, daemon.log_tail()
    assert "Traceback" not in daemon.log_tail()


def test_valid_reload_applies_live_keys_and_names_keys_that_need_a_restart(
    tierd: Installation, log_dir: LogDirWriter
) -> None:
    log_dir.add_partition("other").append([b"x"])
    log_dir.write_checkpoints()
    with tierd.daemon() as daemon:
        daemon.wait_until(lambda: daemon.partition("other-0") is not None, what="both partitions")
        tierd.configure(
            {"topics": {"exclude": ["other"]}, "logging": {"level": "debug"}, "copy": {"attempt_timeout": "9m"}}
        )
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_until(lambda: daemon.partition("other-0") is None, what="the excluded partition to go")
        daemon.wait_until(lambda: "config_needs_restart" in daemon.log_tail(), what="the end of the reload")
        said = daemon.log_tail()
        assert "topics.exclude" in said
        assert "copy.attempt_timeout" in said
        assert daemon.metrics()["tierd_config_reload_success"] == 1
        tierd.configure({"topics": {"exclude": []}})
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_until(lambda: daemon.partition("other-0") is not None, what="the partition to come back")


def test_start_warns_of_a_tier_that_keeps_no_more_than_the_broker(tierd: Installation) -> None:
    kafka = {"kafka": {"bootstrap_servers": ["127.0.0.1:9"]}}
    tierd.configure({"leadership": kafka, "topics": {"defaults": {"retention_bytes": "from-broker"}}})
    with tierd.daemon() as daemon:
        said = daemon.log_file.read_text()
    (line,) = [line for line in said.splitlines() if "config_questionable" in line]
    assert "topics.defaults.retention_bytes" in line
    assert "the tier keeps no more than they do" in line


def test_an_address_in_use_ends_the_start_with_a_remedy(tierd: Installation) -> None:
    host, _, port = tierd.http.rpartition(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        ended = tierd.tierd("run")
    assert ended.exit_code == 3
    assert tierd.http in ended.stderr
    assert "http.listen" in ended.stderr


def test_files_of_tierd_are_accessible_to_its_user_only(tierd: Installation) -> None:
    with tierd.daemon():
        assert stat.S_IMODE(tierd.state_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE((tierd.state_dir / "control.sock").stat().st_mode) == 0o600
    assert not (tierd.state_dir / "control.sock").exists()


@pytest.fixture
def notify_socket(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.setblocking(False)
        yield channel


def test_systemd_is_notified_of_start_reload_and_stop(tierd: Installation, notify_socket: socket.socket) -> None:
    said: list[str] = []

    def heard(word: str) -> bool:
        try:
            while True:
                said.extend(notify_socket.recv(4096).decode().splitlines())
        except BlockingIOError:
            return word in said

    def hear(word: str) -> None:
        wait_until(lambda: heard(word), what=word, deadline_s=30, last_seen=lambda: said)

    def status() -> str:
        return [line.removeprefix("STATUS=") for line in said if line.startswith("STATUS=")][-1]

    environment = os.environ | {"NOTIFY_SOCKET": notify_socket.getsockname(), "WATCHDOG_USEC": "200000"}
    process = subprocess.Popen(
        [TIERD, "run", "--config", str(tierd.config_file)], env=environment, stderr=subprocess.DEVNULL
    )
    hear("READY=1")
    hear("WATCHDOG=1")
    said.clear()
    hear("WATCHDOG=1")  # a second time
    process.send_signal(signal.SIGHUP)
    hear("RELOADING=1")
    hear("READY=1")
    assert status().startswith("1 partitions (")
    good = tierd.config_file.read_text()
    for content, shown in (("state_dir: [", "the configuration file was rejected: "), (good, "1 partitions (")):
        tierd.config_file.write_text(content)
        said.clear()
        process.send_signal(signal.SIGHUP)
        hear("READY=1")
        assert status().startswith(shown)
        assert "1 partitions (" in status()
    process.send_signal(signal.SIGTERM)
    hear("STOPPING=1")
    assert process.wait(30) == 0


def test_daemon_whose_log_goes_to_a_full_disk_copies_and_ends_cleanly(tierd: Installation) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen([TIERD, "run", "--config", str(tierd.config_file)], stderr=full)
    try:
        wait_until(
            lambda: tierd.frontier("synthetic-0") == 3 * SEGMENT_RECORDS - 1,
            what="the copies",
            deadline_s=30,
            last_seen=process.poll,
        )
    finally:
        process.send_signal(signal.SIGTERM)
        exit_code = process.wait(30)
    assert exit_code == 0


class BrokenManager(RemoteLogManager):
    """Manager whose watching fails with an unexpected exception."""

    async def run(self) -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError("a bug in the watcher")


class BrokenEngine(Engine):
    """Engine with a broken manager."""

    def new_tiering(self, supervisor: Supervisor) -> Tiering:
        tiering = super().new_tiering(supervisor)
        tiering.manager.__class__ = BrokenManager
        return tiering


@asynccontextmanager
async def composed(tierd: Installation, kind: type[Engine]) -> AsyncIterator[tuple[TierdConfig, Engine]]:
    config = load_config(tierd.config_file, {})
    config.state_dir.mkdir()
    async with compose(Deployment(config, tierd.config_file)) as engine:
        yield config, kind(**{field.name: getattr(engine, field.name) for field in fields(Engine)})


class HeldStorage(SegmentStorage):
    """Storage whose uploads wait until the test releases them; later ones do not wait."""

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401 - SegmentStorage's own
        super().__init__(*args, **settings)
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()

    async def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes:
        self.reached.set()
        await self.let_go.wait()
        return await super().copy_log_segment_data(metadata, data)


async def test_signal_lets_the_running_copy_end_and_no_other_begin(tierd: Installation) -> None:
    async with composed(tierd, Engine) as (_, engine):
        storage = HeldStorage(*engine.new_storage.args, **engine.new_storage.keywords)
        daemon = Daemon(replace(engine, storage=storage), {}, SystemdNotifier(None))
        with capture_logs() as logs:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                running = group.create_task(daemon.run())
                await storage.reached.wait()
                os.kill(os.getpid(), signal.SIGTERM)
                await eventually(lambda: "stopping" in [entry["event"] for entry in logs], what="the orderly stop")
                assert await asyncio.to_thread(states, tierd) == ["COPY_SEGMENT_STARTED"]
                storage.let_go.set()
        assert running.result() == 0
    assert await asyncio.to_thread(states, tierd) == ["COPY_SEGMENT_FINISHED"]


class HeldRun:
    """Run of the pipeline that ends only when the test releases it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.has_ended = False

    async def __call__(self, progress: RunProgress, names: object) -> None:
        del progress, names
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.let_go.wait()
            self.has_ended = True


async def test_daemon_waits_for_the_end_of_a_run_of_the_pipeline(
    tierd: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon waits until processes of the run are gone, outputs abandoned and leases released."""
    work, clock = HeldRun(), ManualClock()

    def build(engine: Engine, *arguments: Any) -> Pipeline:  # noqa: ANN401 - the types of the original
        scheduler = PipelineScheduler(
            work,
            timetable=Schedule("* * * * *"),
            limits=RunLimits(timeout_s=3600, retries=0),
            history=RunHistory(engine.deployment.state_dir),
            clock=clock,
            random=engine.random,
        )
        return replace(build_pipeline(engine, *arguments), scheduler=scheduler)

    async def has_spark(_: Engine) -> None:
        """Let the host appear to have Java."""

    monkeypatch.setattr(daemon_module, "build_pipeline", build)
    monkeypatch.setattr(daemon_module, "require_pipeline", has_spark)
    tierd.configure({"pipeline": {"enabled": True}})
    async with composed(tierd, Engine) as (config, engine):
        running = asyncio.create_task(Daemon(engine, {}, SystemdNotifier(None)).run())
        await eventually(lambda: clock.sleeping > 0, what="the scheduler")
        clock.advance(60)
        await asyncio.wait_for(work.begun.wait(), 60)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait({running}, timeout=1)
        assert not running.done()
        work.let_go.set()
        assert await asyncio.wait_for(running, 60) == 0
        assert work.has_ended
        assert [report.outcome for report in RunHistory(config.state_dir).read()] == [RunOutcome.CANCELLED]


async def test_failure_of_the_infrastructure_ends_the_daemon_in_order_with_exit_code_1(tierd: Installation) -> None:
    async with composed(tierd, BrokenEngine) as (_, engine):
        with capture_logs() as logs:
            exit_code = await Daemon(engine, {}, SystemdNotifier(None)).run()
    assert exit_code == 1
    events = [entry["event"] for entry in logs]
    assert events.index("vital_task_failed") < events.index("stopping") < events.index("stopped")
    assert next(entry for entry in logs if entry["event"] == "vital_task_failed")["exc_info"]


async def test_tier_of_another_installation_ends_the_daemon_with_the_cause(tierd: Installation) -> None:
    async with composed(tierd, Engine) as (config, engine):
        assert config.remote.filesystem is not None
        identity = config.remote.filesystem.path / engine.identity.cluster_id / "tierd.json"
        identity.parent.mkdir(parents=True)
        identity.write_text('{"format_version": 1, "store_id": "00000000-0000-0000-0000-000000000001"}')
        with pytest.raises(ForeignTierError) as refused:
            await Daemon(engine, {}, SystemdNotifier(None)).run()
    assert "key_prefix" in refused.value.remedy
