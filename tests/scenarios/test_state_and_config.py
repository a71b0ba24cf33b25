"""Files of tierd itself: a damaged metadata store, two daemons on one state dir, errors in the configuration."""

import signal
from pathlib import Path

import pytest

from tests.fakes.log_dirs import write_log_dir
from tests.scenarios.command import TIERD, run_tierd
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Installation
from tests.scenarios.warm_tierd import WarmTierd

PARTITION = "synthetic-0"
ROLLED_THROUGH = 3 * 8 - 1


@pytest.fixture
def tierd(tmp_path: Path, make_installation: MakeInstallation) -> Installation:
    log_dir = write_log_dir(tmp_path / "logdir", partitions=1, rolled_segments=3).path
    return make_installation([log_dir])


def test_damaged_metadata_file_is_refused_and_a_restored_one_is_used(tierd: Installation) -> None:
    assert tierd.ask("copy", "--once").exit_code == 0
    database = tierd.state_dir / "metadata.db"
    sound = database.read_bytes()
    damaged = {
        "garbage": b"not a database" * 1000,
        "truncated": sound[: len(sound) // 2],
        "bit rot in the schema": sound[:100] + bytes([sound[100] ^ 0xFF]) + sound[101:],
    }
    for name, content in damaged.items():
        database.write_bytes(content)
        for arguments in (["copy", "--once"], ["segments", PARTITION], ["run"]):
            ended = (tierd.tierd if arguments == ["run"] else tierd.ask)(*arguments)
            assert ended.exit_code == 3, (name, arguments, ended.output)
            assert str(database) in ended.output, (name, arguments, ended.output)
            assert "Traceback" not in ended.output, (name, arguments, ended.output)
        database.write_bytes(sound)
        assert tierd.frontier(PARTITION) == ROLLED_THROUGH, name


def test_a_second_daemon_on_one_state_dir_is_refused(tierd: Installation) -> None:
    with tierd.daemon() as daemon:
        for arguments in (["run"], ["copy", "--once"]):
            ended = (tierd.tierd if arguments == ["run"] else tierd.ask)(*arguments)
            assert ended.exit_code == 4, ended.output
            assert str(daemon.pid) in ended.output
        assert daemon.is_ready()


def test_reading_commands_work_with_and_without_a_daemon(tierd: Installation) -> None:
    with tierd.daemon() as daemon:
        daemon.wait_copied({PARTITION: ROLLED_THROUGH})
        beside = [tierd.segments(PARTITION), tierd.cat(PARTITION), tierd.ask("explain", PARTITION, "3").exit_code]
    without = [tierd.segments(PARTITION), tierd.cat(PARTITION), tierd.ask("explain", PARTITION, "3").exit_code]
    assert beside == without
    assert tierd.ask("status").exit_code == 3


def test_killed_daemon_with_leftover_lock_and_socket_starts_again(tierd: Installation) -> None:
    daemon = tierd.daemon()
    daemon.start()
    daemon.wait_ready()
    daemon.kill()
    with tierd.daemon() as again:
        again.wait_copied({PARTITION: ROLLED_THROUGH})


def test_every_mistake_of_a_configuration_is_reported_with_its_place(tmp_path: Path, warm_tierd: WarmTierd) -> None:
    file = tmp_path / "tierd.yaml"
    file.write_text(
        "state_dir: /tmp/tierd\n"
        "log_dirs:\n"
        "  - {path: /tmp/kafka, owner: kafka}\n"
        "remote:\n"
        "  backend: filesystem\n"
        "  filesystem: {path: /tmp/store}\n"
        "copy:\n"
        "  intervall: 30s\n"
        "  concurrency: many\n"
        "http: {listen: nowhere}\n"
    )
    for command in ("check-config", "run", "verify"):
        arguments = [command, "--config", str(file)] + ([PARTITION] if command == "verify" else [])
        ended = (run_tierd if command == "run" else warm_tierd.run)(*arguments)
        assert ended.exit_code == 2, ended.output
        for place in (f"{file}:8:3", f"{file}:9:16", f"{file}:10:16"):
            assert place in ended.output, ended.output
        assert "interval" in ended.output


def test_a_missing_configuration_is_a_usage_error(tmp_path: Path) -> None:
    ended = run_tierd("run", "--config", str(tmp_path / "absent.yaml"))
    assert ended.exit_code == 2
    assert "absent.yaml" in ended.output


def test_a_bad_file_on_reload_keeps_the_old_settings(tierd: Installation) -> None:
    good = tierd.config_file.read_text()
    with tierd.daemon() as daemon:
        assert daemon.metrics()["tierd_config_reload_success"] == 1
        tierd.config_file.write_text("state_dir: [")
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_until(lambda: daemon.metrics()["tierd_config_reload_success"] == 0, what="the reload to be refused")
        assert daemon.is_ready()
        assert "tierd.yaml:1" in daemon.log_tail()
        tierd.config_file.write_text(good)
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_until(lambda: daemon.metrics()["tierd_config_reload_success"] == 1, what="the reload to be applied")


def test_sigterm_and_sigint_end_the_daemon_cleanly_and_keep_its_copies(tierd: Installation) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        daemon = tierd.daemon(command=(str(TIERD),))
        daemon.start()
        daemon.wait_ready()
        daemon.wait_copied({PARTITION: ROLLED_THROUGH})
        daemon.send_signal(number)
        assert daemon.wait_end() == 0, daemon.log_tail()
    assert tierd.ask("verify", "--deep").exit_code == 0
