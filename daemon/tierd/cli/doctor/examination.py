"""The examination: all probes at the same time, each in a thread of its own, and their results as facts.

A thread that hangs, as on a disk that does not answer, is left behind: it ends with the process, and nothing waits for
it. A probe that fails is a result, also if a bug made it fail.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from tierd.cli.asking import daemon_state_dir
from tierd.cli.doctor.check_probe import probe_config
from tierd.cli.doctor.daemon_probes import probe_daemon, probe_journal, probe_liveness, probe_log_file, probe_process
from tierd.cli.doctor.facts import CheckFacts, DaemonFacts, DaemonLogFacts, Facts, HostFacts, ProbeFailure, ProcessFacts
from tierd.cli.doctor.host_probes import probe_files, probe_host
from tierd.config import find_state_dir
from tierd.errors import TierError
from tierd.masking import Masking

T = TypeVar("T")
DoctorProbe = Callable[[], object]

_DEFAULT_LISTEN = "127.0.0.1:9405"
_CHECK_TIMES = 3  # the steps of a check are taken one after the other, as far as they need each other
_CLEAN_UP_S = 6.0  # of a check that is ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Request for an examination.

    Attributes:
        socket: the control socket of the daemon; None for the one in the ``state_dir`` of the file.
        online: also try log dirs, stores and brokers, as ``tierd check-config --online`` does.
        unit: of systemd, whose journal and credentials are used.
        log_file: the daemon's log; None for the journal of ``unit``.
        timeout_s: longest time of a probe; the check of the configuration has three times as long for all its steps.
    """

    config_file: Path
    socket: Path | None = None
    online: bool = True
    unit: str = "tierd"
    log_file: Path | None = None
    timeout_s: float = 10.0

    @property
    def check_timeout_s(self) -> float:
        """Return the longest time of the check of the configuration."""
        return self.timeout_s * (_CHECK_TIMES if self.online else 1)


def examine(request: Examination) -> Facts:
    """Run all probes, and return their results after a bounded time. Blocking.

    Raises:
        TierError: ``socket`` is not a control socket of tierd.
    """
    state_dir = _state_dir(request)
    directory = state_dir if isinstance(state_dir, Path) else None
    probes: dict[str, DoctorProbe] = {
        "check": partial(_check, request),
        "files": partial(probe_files, request.config_file, directory),
        "host": probe_host,
        "log": partial(_log, request),
    }
    if directory is not None:
        probes["daemon"] = partial(probe_daemon, directory, timeout_s=request.timeout_s)
        probes["process"] = partial(probe_process, directory)
    results = run_probes(probes, timeout_s=request.check_timeout_s + _CLEAN_UP_S)
    process = results.get("process")
    facts = Facts(
        now_ms=time.time_ns() // 1_000_000,
        config_file=request.config_file,
        state_dir=directory,
        check=_expected(CheckFacts, results["check"]),
        daemon=_expected(DaemonFacts, results.get("daemon", state_dir)),
        process=None if process is None else _expected(ProcessFacts, process),
        files=_expected(tuple, results["files"]),
        host=_expected(HostFacts, results["host"]),
        log=_expected(DaemonLogFacts, results["log"]),
        unit=request.unit,
    )
    return replace(facts, liveness=_liveness(facts, timeout_s=request.timeout_s))


def _state_dir(request: Examination) -> Path | ProbeFailure:
    """Return the directory of the control socket, or why the file does not say it."""
    if request.socket is not None:
        return daemon_state_dir(request.config_file, request.socket)
    find = partial(_find_state_dir, request.config_file)
    found = run_probes({"state_dir": find}, timeout_s=request.timeout_s)["state_dir"]
    return _expected(Path, found)


def _find_state_dir(config_file: Path) -> Path:
    found = find_state_dir(config_file, os.environ)
    if found is not None:
        return found
    from tierd.config import load_state_dir  # noqa: PLC0415 - the schema of the file, only where it has faults

    return load_state_dir(config_file, os.environ)[0]


def _check(request: Examination) -> CheckFacts:
    return probe_config(
        request.config_file,
        online=request.online,
        unit=request.unit,
        step_timeout_s=request.timeout_s,
        timeout_s=request.check_timeout_s,
    )


def _log(request: Examination) -> DaemonLogFacts:
    if request.log_file is not None:
        return probe_log_file(request.log_file)
    return probe_journal(request.unit, timeout_s=request.timeout_s)


def _liveness(facts: Facts, *, timeout_s: float) -> str:
    """Return the body of ``/livez`` of a daemon that answers its socket, if it says that a task is stuck."""
    if facts.status is None or facts.config is None or facts.config.faults:
        return ""
    section = facts.config.masked.get("http")
    listen = section.get("listen", _DEFAULT_LISTEN) if isinstance(section, dict) else _DEFAULT_LISTEN
    probe = partial(probe_liveness, str(listen), timeout_s=timeout_s)
    found = run_probes({"liveness": probe}, timeout_s=timeout_s)["liveness"]
    return found if isinstance(found, str) else ""


def _expected(kind: type[T], result: object) -> T | ProbeFailure:
    if not isinstance(result, (kind, ProbeFailure)):
        raise TypeError(f"a probe returned {type(result).__name__}, not {kind.__name__}")
    return result


def run_probes(probes: Mapping[str, DoctorProbe], *, timeout_s: float) -> dict[str, object]:
    """Run all ``probes`` at the same time; return the result of each, or a ``ProbeFailure``, after ``timeout_s``."""
    results: SimpleQueue[tuple[str, object]] = SimpleQueue()

    def run(name: str, probe: DoctorProbe) -> None:
        results.put((name, _outcome(probe)))

    for name, probe in probes.items():
        threading.Thread(target=run, args=(name, probe), name=f"probe {name}", daemon=True).start()
    found: dict[str, object] = {}
    deadline_s = time.monotonic() + timeout_s
    while len(found) < len(probes):
        try:
            name, result = results.get(timeout=max(deadline_s - time.monotonic(), 0))
        except Empty:
            break
        found[name] = result
    late = ProbeFailure(f"no answer within {timeout_s:g} s", "look for a hung disk or mount", timed_out=True)
    return {name: found.get(name, late) for name in probes}


def _outcome(probe: DoctorProbe) -> object:
    try:
        return probe()
    except TierError as error:
        return ProbeFailure(" ".join(str(error).split()), error.remedy)
    except Exception as error:  # noqa: BLE001 - the other probes go on, and the finding names the bug
        return ProbeFailure(Masking().error(error).named, "report this, with a bundle")
