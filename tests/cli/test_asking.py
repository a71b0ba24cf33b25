"""Questions of commands to the daemon: where they find it, and what they say when it does not answer."""

from pathlib import Path

import pytest

from tests.fakes.answering_daemon import answering_daemon
from tierd.cli.asking import ask_daemon, daemon_state_dir, until_interrupted
from tierd.errors import ConfigError, DaemonUnreachableError, TierError
from tierd.serve import PAUSE, PartitionsRequest


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a file with a fault in a key that a question does not need."""
    file = tmp_path / "tierd.yaml"
    file.write_text("state_dir: .\ncopyy: 1\n")
    return file


def pause(config: Path, socket: Path | None = None) -> tuple[str, ...]:
    return ask_daemon(config, socket, PAUSE, PartitionsRequest()).root


def test_daemon_of_a_file_with_faults_answers(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering_daemon(config.parent, lambda request: [request["command"]]):
        assert pause(config) == ("pause",)
    assert capsys.readouterr().err == ""


def test_faults_of_the_file_are_said_when_no_daemon_answers(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DaemonUnreachableError):
        pause(config)
    assert f"{config} has faults, run tierd check-config" in capsys.readouterr().err


def test_file_is_not_read_where_the_socket_is_given(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.unlink()
    with answering_daemon(config.parent, lambda _: []) as socket:
        assert pause(config, socket) == ()
    with pytest.raises(DaemonUnreachableError):
        pause(config, socket)
    assert capsys.readouterr().err == ""


def test_state_dir_of_no_use_is_an_error_that_names_it(config: Path) -> None:
    config.write_text("state_dir: relative\n")
    with pytest.raises(ConfigError, match="state_dir"):
        daemon_state_dir(config, None)


def test_state_dir_of_a_file_that_is_no_yaml_is_still_found(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("log_dirs: [\nstate_dir: /srv/tierd\n")
    assert daemon_state_dir(config, None) == Path("/srv/tierd")
    assert "has faults" in capsys.readouterr().err


def test_file_of_another_name_is_no_control_socket(config: Path) -> None:
    with pytest.raises(TierError, match="is no control socket"):
        daemon_state_dir(config, config.parent / "other.sock")


def test_answers_come_at_the_interval_until_ctrl_c_ends_them() -> None:
    waited: list[float] = []
    numbers = iter(range(3))

    def ask() -> int:
        for number in numbers:
            return number
        raise KeyboardInterrupt

    seen: list[int] = []
    with until_interrupted(ask, every_s=2.0, wait=waited.append) as answers:
        for answer in answers:
            seen.append(answer)  # noqa: PERF402 - the iterator ends with an exception

    assert seen == [0, 1, 2]
    assert waited == [2.0, 2.0, 2.0]


def test_error_between_two_answers_is_not_hidden() -> None:
    def ask() -> int:
        raise DaemonUnreachableError("no answer", remedy="start it")

    with pytest.raises(DaemonUnreachableError), until_interrupted(ask, every_s=2.0) as answers:
        next(answers)
