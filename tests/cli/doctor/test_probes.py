"""Probes on real files, processes and sockets; each ends in time, and a failure is a result."""

import fcntl
import http.server
import json
import os
import socket
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tierd.cli.doctor.check_probe import probe_config
from tierd.cli.doctor.daemon_probes import (
    probe_daemon,
    probe_journal,
    probe_liveness,
    probe_log_file,
    probe_process,
)
from tierd.cli.doctor.examination import run_probes
from tierd.cli.doctor.facts import CheckedStep, CheckFacts, FileFacts, LogEvent, ProbeFailure
from tierd.cli.doctor.host_probes import probe_files, probe_host
from tierd.errors import TierError
from tierd.masking import MASK

NOW = datetime(2026, 11, 21, 22, 30, tzinfo=UTC)


class TestRunProbes:
    """The threads of the probes."""

    def test_probe_that_hangs_is_a_failure_and_does_not_keep_the_others(self) -> None:
        release = threading.Event()
        try:
            found = run_probes({"hangs": release.wait, "answers": lambda: 7}, timeout_s=0.2)
        finally:
            release.set()

        assert found["answers"] == 7
        assert found["hangs"] == ProbeFailure("no answer within 0.2 s", "look for a hung disk or mount", timed_out=True)

    def test_probe_that_fails_is_a_failure_with_its_remedy(self) -> None:
        def fail() -> object:
            raise TierError("no\nroom", remedy="free some")

        assert run_probes({"a": fail}, timeout_s=60.0) == {"a": ProbeFailure("no room", "free some")}

    def test_bug_in_a_probe_is_a_failure_without_secrets(self) -> None:
        def fail() -> object:
            raise KeyError("redis://:hunter2@host/")

        found = run_probes({"a": fail}, timeout_s=60.0)["a"]

        assert isinstance(found, ProbeFailure)
        assert found.cause.startswith("KeyError: ")
        assert "hunter2" not in found.cause


def check(program: str, folder: Path, *, timeout_s: float = 60.0) -> CheckFacts:
    """Return the facts of a check that ``program`` stands in for."""
    return probe_config(
        folder / "tierd.yaml",
        online=True,
        unit="tierd",
        step_timeout_s=5.0,
        timeout_s=timeout_s,
        command=(sys.executable, "-c", program),
    )


class TestProbeConfig:
    """The process that checks the configuration."""

    def test_lines_of_the_check_are_facts(self, tmp_path: Path) -> None:
        file = {
            "valid": False,
            "faults": [{"file": "t", "line": 3, "column": 1, "message": "no"}],
            "warnings": [{"key": "a", "message": "b", "next_step": "c"}],
            "secrets_in_file": ["x.y"],
            "masked": {"k": 1},
        }
        lines = [
            json.dumps(file),
            '{"area": "log dirs", "name": "/data", "outcome": "begun", "detail": "", "next_step": ""}',
            '{"area": "object store", "name": "put", "outcome": "begun", "detail": "", "next_step": ""}',
            '{"area": "log dirs", "name": "/data", "outcome": "failed", "detail": "gone", "next_step": "mount it"}',
            "no JSON",
        ]

        found = check(f"print({chr(10).join(lines)!r})", tmp_path)

        assert found.config is not None
        assert found.config.faults == ("t:3:1: no",)
        assert found.config.warnings == (("a", "b", "c"),)
        assert (found.config.secrets_in_file, found.config.masked) == (("x.y",), {"k": 1})
        assert found.steps == (
            CheckedStep("log dirs", "/data", "failed", "gone", "mount it"),
            CheckedStep("object store", "put", "begun"),
        )
        assert found.problem == ""

    def test_command_line_bounds_each_step_and_names_the_file(self, tmp_path: Path) -> None:
        found = check("import sys, json; print(json.dumps({'valid': True, 'masked': {'a': sys.argv[1:]}}))", tmp_path)

        assert found.config is not None
        assert found.config.masked["a"] == [
            *("check-config", "--json-lines", "--online", "--step-timeout", "5"),
            *("--config", f"{tmp_path}/tierd.yaml"),
        ]

    @pytest.mark.parametrize("ignores", ["", "signal.signal(signal.SIGINT, signal.SIG_IGN);"])
    def test_check_that_hangs_is_ended_and_what_it_printed_counts(self, ignores: str, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        program = f"""import os, signal; {ignores}
open({str(pid_file)!r}, 'w').write(str(os.getpid()))
print('{{"area": "log dirs", "name": "/data", "outcome": "begun"}}', flush=True)
while True: signal.pause()"""

        found = check(program, tmp_path, timeout_s=2.0)

        assert found.problem == "it took longer than 2 s"
        assert found.steps == (CheckedStep("log dirs", "/data", "begun"),)
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid_file.read_text()), 0)

    def test_check_that_ends_by_a_bug_is_named_without_secrets(self, tmp_path: Path) -> None:
        found = check(
            "raise SystemExit(print('Boom: password=hunter2', file=__import__('sys').stderr) or 70)", tmp_path
        )

        assert found.problem == f"it ended with 70: Boom: password={MASK}"

    def test_check_that_prints_nothing_is_a_problem(self, tmp_path: Path) -> None:
        assert check("0", tmp_path) == CheckFacts(problem="it printed nothing about the file")


class TestProbeDaemon:
    """The control socket, the process behind it, and its liveness."""

    def test_socket_that_is_not_there_is_no_timeout(self, tmp_path: Path) -> None:
        found = probe_daemon(tmp_path, timeout_s=60.0)

        assert found.status is None
        assert found.failure is not None
        assert (found.failure.timed_out, found.is_forbidden) == (False, False)
        assert "No such file" in found.failure.cause

    def test_socket_that_does_not_answer_is_a_timeout(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "control.sock"))
            server.listen()
            found = probe_daemon(tmp_path, timeout_s=0.2)

        assert found.failure is not None
        assert found.failure.timed_out

    def test_state_directory_of_another_user_is_forbidden(self, tmp_path: Path) -> None:
        state_dir, user = tmp_path / "state", os.geteuid()
        state_dir.mkdir(0)
        os.seteuid(user or 65534)  # root may enter every directory
        try:
            found = probe_daemon(state_dir, timeout_s=60.0)
        finally:
            os.seteuid(user)

        assert found.is_forbidden

    def test_process_is_the_one_that_holds_the_lock(self, tmp_path: Path) -> None:
        assert probe_process(tmp_path) is None
        with (tmp_path / "lock").open("w") as lock:
            assert probe_process(tmp_path) is None
            fcntl.flock(lock, fcntl.LOCK_EX)

            found = probe_process(tmp_path)

        assert found is not None
        assert (found.pid, found.uid) == (os.getpid(), os.geteuid())
        assert found.state in {"R", "S", "D"}
        assert found.open_files_limit
        assert probe_process(tmp_path) is None

    def test_name_of_a_program_does_not_hide_its_state(self, tmp_path: Path) -> None:
        (tmp_path / "lock").touch()
        proc = tmp_path / "proc"
        (proc / "41").mkdir(parents=True)
        inode = (tmp_path / "lock").stat().st_ino
        (proc / "locks").write_text(
            f"1: POSIX ADVISORY WRITE 9 08:01:{inode} 0 EOF\n2: FLOCK  ADVISORY  WRITE 41 08:01:{inode} 0 EOF\n"
        )
        (proc / "41" / "stat").write_text("41 (a) S (b)) T 1 41 41")

        found = probe_process(tmp_path, proc=proc)

        assert found is not None
        assert (found.pid, found.state, found.open_files_limit) == (41, "T", None)

    @pytest.mark.parametrize(("status", "said"), [(503, "stuck: copy orders-0"), (200, ""), (404, "")])
    def test_daemon_is_stuck_only_if_livez_says_so(self, status: int, said: str) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"stuck: copy orders-0")

            def log_message(self, *arguments: object) -> None:
                """Print nothing."""

        with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            assert probe_liveness(f"127.0.0.1:{server.server_port}", timeout_s=60.0) == said
            thread.join()

    def test_port_without_a_listener_says_nothing_about_the_daemon(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        assert probe_liveness(f"127.0.0.1:{port}", timeout_s=60.0) == ""


LINES = """\
{"timestamp": "2026-11-21T21:00:00.000Z", "level": "error", "event": "too_old"}
{"timestamp": "2026-11-21T22:00:00.000Z", "level": "info", "event": "segment_copied"}
{"timestamp": "2026-11-21T22:01:00.000Z", "level": "error", "event": "copy_failed", "partition": "a-0", "error": "no"}
{"timestamp": "2026-11-21T22:02:00.000Z", "level": "warning", "event": "copy_retried", "problem": "password=hunter2"}
{"timestamp": "never", "level": "error", "event": "odd"}
{"level": "error"
tierd.service: Main process exited, code=killed, status=9/KILL
Starting tierd
"""


class TestLog:
    """The log of the daemon, in a file or in the journal."""

    def test_warnings_and_errors_of_the_last_hour_are_events(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text(LINES)

        found = probe_log_file(tmp_path / "log", now=NOW)

        assert found.events == (
            LogEvent("error", "copy_failed", "2026-11-21T22:01:00.000Z", "a-0; no"),
            LogEvent("warning", "copy_retried", "2026-11-21T22:02:00.000Z", f"password={MASK}"),
        )
        assert found.exits == ("tierd.service: Main process exited, code=killed, status=9/KILL",)
        assert len(found.lines) == 8
        assert "hunter2" not in "\n".join(found.lines)

    def test_lines_and_their_lengths_are_bounded(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text("line\n" * 5000 + "x" * 100_000 + "\n")

        lines = probe_log_file(tmp_path / "log").lines

        assert len(lines) == 2000
        assert lines[-2:] == ("line", "(a line of 100000 characters)")

    def test_line_whose_beginning_is_not_read_is_left_out(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text("x" * (5 << 20) + "half of a secret\nline\n")

        assert probe_log_file(tmp_path / "log").lines == ("line",)

    def test_log_that_is_not_there_is_an_error_with_a_remedy(self, tmp_path: Path) -> None:
        with pytest.raises(TierError, match="No such file") as raised:
            probe_log_file(tmp_path / "log")
        assert raised.value.remedy

    @pytest.fixture
    def journalctl(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Return the place of a program that stands in for journalctl."""
        monkeypatch.setenv("PATH", str(tmp_path))
        return tmp_path / "journalctl"

    def write(self, program: Path, script: str) -> None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def test_journal_of_the_unit_is_read(self, journalctl: Path) -> None:
        self.write(journalctl, 'echo "$@"')

        found = probe_journal("tierd-2", timeout_s=60.0)

        assert found.source == "the journal of tierd-2"
        assert found.lines == ("--unit tierd-2 -o cat -n 2000 --since -1h --no-pager -q",)

    def test_host_without_a_journal_is_an_error(self, journalctl: Path) -> None:
        assert not journalctl.exists()
        with pytest.raises(TierError, match="journalctl is not installed"):
            probe_journal("tierd", timeout_s=60.0)

    @pytest.mark.parametrize("script", ["exit 0", "echo not seeing messages >&2; exit 1"])
    def test_journal_without_lines_is_an_error(self, script: str, journalctl: Path) -> None:
        self.write(journalctl, script)
        with pytest.raises(TierError, match="no line of tierd"):
            probe_journal("tierd", timeout_s=60.0)

    def test_journal_that_hangs_is_an_error(self, journalctl: Path) -> None:
        self.write(journalctl, f"exec {sys.executable} -c 'import signal; signal.pause()'")
        with pytest.raises(TierError, match=r"took longer than 0\.3 s"):
            probe_journal("tierd", timeout_s=0.3)


class TestHost:
    """Versions, limits and files."""

    def test_files_have_owner_and_mode(self, tmp_path: Path) -> None:
        config, state_dir = tmp_path / "tierd.yaml", tmp_path / "state"
        config.touch(0o640)
        state_dir.mkdir(0o700)
        (state_dir / "lock").touch(0o600)
        os.mkfifo(state_dir / "pipe", 0o600)

        assert probe_files(config, state_dir) == (
            FileFacts(config, "file", os.geteuid(), 0o640),
            FileFacts(state_dir, "directory", os.geteuid(), 0o700),
            FileFacts(state_dir / "lock", "file", os.geteuid(), 0o600),
            FileFacts(state_dir / "pipe", "other", os.geteuid(), 0o600),
        )

    def test_files_that_are_not_there_are_left_out(self, tmp_path: Path) -> None:
        assert probe_files(tmp_path / "tierd.yaml", tmp_path / "state") == ()
        assert probe_files(tmp_path / "tierd.yaml", None) == ()

    def test_host_names_versions_and_limits(self) -> None:
        found = probe_host()

        assert found.version
        assert found.uid == os.geteuid()
        assert found.packages["pydantic"]
        assert found.inotify_watches
        assert found.clock_synchronised in {True, False, None}
