import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tierd.cli.failures import ExitCode, exit_code_of
from tierd.config import CopySettings, PipelineSettings, parse_duration_s
from tierd.config.schema import TierdConfig
from tierd.errors import ListenError

UNIT = Path(__file__).parents[2] / "systemd" / "tierd.service"
SPARK_DROP_IN = UNIT.with_name("tierd-spark.conf")
MAX_EXPOSURE = 3.0


def settings_of(wanted: str, file: Path = UNIT) -> dict[str, list[str]]:
    """Return every setting of a section; systemd accepts a key several times."""
    section, settings = "", dict[str, list[str]]()
    for line in file.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif section == wanted and line and not line.startswith("#"):
            key, _, value = line.partition("=")
            settings.setdefault(key, []).append(value)
    return settings


@pytest.fixture(scope="module")
def service() -> dict[str, list[str]]:
    """Return the section Service of the unit."""
    return settings_of("Service")


def seconds(service: dict[str, list[str]], key: str) -> float:
    return parse_duration_s(service[key][0].replace("min", "m"))


def test_unit_expects_readiness_and_watchdog_messages_of_the_daemon(service: dict[str, list[str]]) -> None:
    assert service["Type"] == ["notify"]
    assert service["NotifyAccess"] == ["main"]
    assert seconds(service, "WatchdogSec") >= 30
    assert service["ExecStart"] == ["/opt/tierd/bin/tierd run --config /etc/tierd/tierd.yaml"]
    assert service["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


def test_unit_restarts_the_daemon_without_end_if_a_store_is_unreachable_at_the_start(
    service: dict[str, list[str]],
) -> None:
    assert settings_of("Unit")["StartLimitIntervalSec"] == ["0"]
    assert service["Restart"] == ["on-failure"]
    assert str(ExitCode.UNREACHABLE.value) not in service["RestartPreventExitStatus"][0].split()

    assert seconds(service, "RestartSec") >= 5


def test_unit_restarts_a_daemon_whose_port_is_in_use(service: dict[str, list[str]]) -> None:
    """While the daemon is stopped, every user of the host can bind its port."""
    exit_code = exit_code_of(ListenError("127.0.0.1:9405 cannot be bound"))

    assert str(exit_code.value) not in service["RestartPreventExitStatus"][0].split()


def test_unit_allows_connections_to_stores_and_brokers(service: dict[str, list[str]]) -> None:
    assert set(service["RestrictAddressFamilies"][0].split()) == {"AF_UNIX", "AF_INET", "AF_INET6"}
    assert "PrivateNetwork" not in service
    assert "IPAddressDeny" not in service


@pytest.mark.parametrize("example", sorted((UNIT.parents[1] / "config").glob("*.yaml")), ids=lambda path: path.stem)
def test_credentials_of_the_examples_are_in_the_unit(example: Path) -> None:
    named = set(re.findall(r"credential:([a-z][a-z0-9-]+)", example.read_text()))

    assert named <= set(re.findall(r"^#LoadCredential=([a-z0-9-]+):", UNIT.read_text(), re.MULTILINE))


def test_stop_timeout_of_the_unit_is_longer_than_that_of_the_daemon(service: dict[str, list[str]]) -> None:
    ours_s = TierdConfig.model_fields["shutdown_timeout_s"].default

    assert seconds(service, "TimeoutStopSec") >= ours_s + 10


def test_unit_allows_a_descriptor_for_every_held_segment(service: dict[str, list[str]]) -> None:
    assert int(service["LimitNOFILE"][0]) >= 65536
    assert CopySettings().concurrency < 1000


def test_unit_runs_as_the_user_of_the_broker_without_privileges(service: dict[str, list[str]]) -> None:
    assert service["User"] == ["kafka"]
    assert service["CapabilityBoundingSet"] == [""]
    assert service["NoNewPrivileges"] == ["yes"]
    assert service["ProtectSystem"] == ["strict"]
    assert "ReadWritePaths" not in service
    assert "ReadOnlyPaths" not in service


def test_unit_explains_both_set_ups_of_holds() -> None:
    comments = "\n".join(line for line in UNIT.read_text().splitlines() if line.startswith("#"))

    for word in ("EXDEV", "protected_hardlinks", "ReadWritePaths=/var/lib/kafka", "hold.mode: auto", "hold: {dir:"):
        assert word in comments


def test_sandbox_of_the_unit_has_a_low_exposure(service: dict[str, list[str]]) -> None:
    """The score is that of systemd where systemd is installed; the settings behind it are checked everywhere."""
    for key in ("PrivateTmp", "PrivateDevices", "PrivateUsers", "ProtectKernelTunables", "MemoryDenyWriteExecute"):
        assert service[key] == ["yes"]
    assert service["SystemCallFilter"] == ["@system-service", "~@privileged @resources"]
    if shutil.which("systemd-analyze"):
        assert exposure_of(UNIT) <= MAX_EXPOSURE


def exposure_of(unit: Path) -> float:
    report = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    score = re.search(r"exposure level for tierd\.service: ([\d.]+)", report)
    assert score
    return float(score[1])


class TestSparkDropIn:
    """Drop-in with the permissions that Java needs; without Spark the unit has none of them."""

    def test_drop_in_allows_only_the_permissions_that_java_needs(self) -> None:
        assert settings_of("Service", SPARK_DROP_IN) == {
            "MemoryDenyWriteExecute": ["no"],
            "SystemCallFilter": ["ioprio_set setpriority"],
            "OOMPolicy": ["continue"],
        }

    def test_unit_forbids_the_permissions_of_the_drop_in(self, service: dict[str, list[str]]) -> None:
        assert service["MemoryDenyWriteExecute"] == ["yes"]
        assert service["SystemCallFilter"][-1].startswith("~")
        assert "@resources" in service["SystemCallFilter"][-1]

    def test_stop_timeout_of_the_unit_is_longer_than_that_of_a_run(self, service: dict[str, list[str]]) -> None:
        assert seconds(service, "TimeoutStopSec") >= PipelineSettings().stop_timeout_s + 10
        assert service["KillMode"] == ["mixed"], "the job is asked by tierd, not by systemd"

    def test_install_and_pipeline_pages_name_the_path_of_the_drop_in(self) -> None:
        for page in ("install.md", "pipeline.md"):
            text = (UNIT.parents[1] / "docs" / page).read_text()
            assert "systemd/tierd-spark.conf /etc/systemd/system/tierd.service.d/spark.conf" in text

    @pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
    def test_sandbox_with_the_drop_in_has_a_low_exposure(self, tmp_path: Path) -> None:
        unit = tmp_path / "tierd.service"
        added = "\n[Service]\n" + SPARK_DROP_IN.read_text().partition("[Service]\n")[2]
        unit.write_text(UNIT.read_text() + added)

        assert exposure_of(unit) <= MAX_EXPOSURE
