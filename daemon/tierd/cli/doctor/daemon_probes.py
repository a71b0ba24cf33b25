"""Probes of the daemon: its answer, the process behind it, its liveness and its log. Blocking."""

import http.client
import os
import re
import subprocess
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from tierd.cli.doctor.facts import DaemonFacts, DaemonLogFacts, LogEvent, ProbeFailure, ProcessFacts
from tierd.control_characters import visible
from tierd.errors import TierError
from tierd.files import open_to_read
from tierd.json_parsing import parse_json
from tierd.masking import masked
from tierd.serve import STATUS, StatusRequest, ask_blocking

_LOCK_NAME: Final = "lock"
_MOST_LINES: Final = 2000
_MOST_LOG_BYTES: Final = 4 << 20
_LONGEST_LINE: Final = 16_000
_LONGEST_DETAIL: Final = 300
_RECENT: Final = timedelta(hours=1)
_WHAT_HAPPENED: Final = ("partition", "service", "problem", "error", "reason", "remedy")
_EXIT: Final = re.compile(r"Main process exited|Failed with result|Watchdog timeout|killed by the OOM|oom-kill")
_LOCK: Final = re.compile(r"\d+: FLOCK\s+ADVISORY\s+WRITE (\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ")


def probe_daemon(state_dir: Path, *, timeout_s: float) -> DaemonFacts:
    """Ask the daemon of ``state_dir`` for its status."""
    try:
        return DaemonFacts(status=ask_blocking(state_dir, STATUS, StatusRequest(), timeout_s=timeout_s))
    except TierError as error:
        is_late = isinstance(error.__cause__, TimeoutError)
        failure = ProbeFailure(" ".join(str(error).split()), error.remedy, timed_out=is_late)
        return DaemonFacts(failure=failure, is_forbidden=isinstance(error.__cause__, PermissionError))


def probe_process(state_dir: Path, *, proc: Path = Path("/proc")) -> ProcessFacts | None:
    """Return the process that holds the lock of ``state_dir``; None if none does.

    The lock is not tried: a daemon that starts at this moment would find it taken.
    """
    try:
        inode = (state_dir / _LOCK_NAME).stat().st_ino
    except OSError:
        return None
    locks = _LOCK.findall((proc / "locks").read_text(errors="replace"))
    pid = next((int(holder) for holder, its_inode in locks if int(its_inode) == inode), None)
    if pid is None:
        return None
    return ProcessFacts(pid=pid, state=_state(proc, pid), uid=_uid(proc, pid), open_files_limit=_limit(proc, pid))


def _state(proc: Path, pid: int) -> str:
    text = _read(proc / str(pid) / "stat")
    return text.rpartition(")")[2].strip()[:1]  # the name of a program may have brackets


def _uid(proc: Path, pid: int) -> int:
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return -1


def _limit(proc: Path, pid: int) -> int | None:
    found = re.search(r"^Max open files\s+(\d+)", _read(proc / str(pid) / "limits"), re.MULTILINE)
    return int(found[1]) if found else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def probe_liveness(address: str, *, timeout_s: float) -> str:
    """Return the body of ``/livez`` at ``address`` if it says that the daemon is stuck; empty otherwise.

    Another program may listen there: only the status 503 counts.
    """
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request("GET", "/livez")
        answer = connection.getresponse()
        return answer.read(_LONGEST_LINE).decode(errors="replace") if answer.status == 503 else ""
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def probe_journal(unit: str, *, timeout_s: float) -> DaemonLogFacts:
    """Return the last hour of the journal of ``unit``.

    Raises:
        TierError: there is no journal here, this user may not read it, or it does not answer in time.
    """
    command = ["journalctl", "--unit", unit, "-o", "cat", "-n", str(_MOST_LINES), "--since", "-1h", "--no-pager", "-q"]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise TierError("journalctl is not installed", remedy="name the file of the log with --log") from error
    except subprocess.TimeoutExpired as error:
        raise TierError(f"journalctl took longer than {timeout_s:g} s", remedy="read it by hand") from error
    lines = ended.stdout.decode(errors="replace").splitlines()
    if ended.returncode or not lines:
        said = _shortened(ended.stderr.decode(errors="replace"))
        raise TierError(
            f"the journal has no line of {unit} from the last hour" + (f": {said}" if said else ""),
            remedy="name the unit with --unit, or the file of the log with --log; join the group systemd-journal",
        )
    return _log_facts(f"the journal of {unit}", lines, now=datetime.now(UTC))


def probe_log_file(path: Path, *, now: datetime | None = None) -> DaemonLogFacts:
    """Return the end of a file that has the daemon's log; events older than an hour count only as lines.

    Raises:
        TierError: the file cannot be read.
    """
    try:
        with open_to_read(path) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _MOST_LOG_BYTES, 0))
            is_cut = file.tell() > 0
            lines = file.read(_MOST_LOG_BYTES).decode(errors="replace").splitlines()
    except OSError as error:
        raise TierError(f"{path}: {error.strerror or error}", remedy="name a file that this user may read") from error
    return _log_facts(str(path), lines[is_cut:], now=now or datetime.now(UTC))


def _log_facts(source: str, lines: Iterable[str], *, now: datetime) -> DaemonLogFacts:
    kept = tuple(map(_safe_line, list(lines)[-_MOST_LINES:]))
    exits = tuple(_shortened(line) for line in kept if not line.startswith("{") and _EXIT.search(line))
    return DaemonLogFacts(source=source, lines=kept, events=tuple(_events(kept, since=now - _RECENT)), exits=exits)


def _safe_line(line: str) -> str:
    """Return a line without what looks like a secret; a very long one is left out, since a cut might halve a secret."""
    return visible(masked(line)) if len(line) <= _LONGEST_LINE else f"(a line of {len(line)} characters)"


def _shortened(text: str) -> str:
    """Return the beginning of a text, cut between two words."""
    return textwrap.shorten(text, _LONGEST_DETAIL, placeholder=" …")


def _events(lines: Iterable[str], *, since: datetime) -> Iterator[LogEvent]:
    for line in lines:
        try:
            fields = parse_json(line)
        except ValueError:
            continue
        if isinstance(fields, dict) and (event := _event(fields)) is not None and _is_since(event.timestamp, since):
            yield event


def _event(fields: Mapping[str, object]) -> LogEvent | None:
    """Return the event of a line of the log if it is a warning or an error."""
    match fields:
        case {"level": "warning" | "error" | "critical" as level, "event": str(name), "timestamp": str(timestamp)}:
            detail = "; ".join(str(fields[each]) for each in _WHAT_HAPPENED if fields.get(each))
            return LogEvent("warning" if level == "warning" else "error", name, timestamp, _shortened(detail))
        case _:
            return None


def _is_since(timestamp: str, since: datetime) -> bool:
    try:
        return datetime.fromisoformat(timestamp) >= since
    except (ValueError, TypeError):
        return False
