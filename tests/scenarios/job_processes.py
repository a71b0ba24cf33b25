"""Processes of a job on Spark, as the kernel lists them."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """Running process; a zombie does not run."""

    pid: int
    parent: int
    command: str


def job_processes(daemon_pid: int) -> list[Process]:
    """Return all descendants of a daemon."""
    running = list(_running())
    found = [each for each in running if each.parent == daemon_pid]
    for each in found:  # grows while it is walked
        found += [child for child in running if child.parent == each.pid]
    return found


def driver(daemon_pid: int) -> Process | None:
    """Return the Python process of the driver; None without one."""
    return next((each for each in job_processes(daemon_pid) if _is_driver(each)), None)


def python_workers(daemon_pid: int) -> list[Process]:
    """Return the Python processes of executors, with the one that forks them."""
    found = job_processes(daemon_pid)
    java = {each.pid for each in found if "/bin/java" in each.command}
    workers = [each for each in found if each.parent in java and not _is_driver(each) and "python" in each.command]
    forking = {each.pid for each in workers}
    return [*workers, *(each for each in found if each.parent in forking)]


def is_running(pid: int) -> bool:
    """Return True if the process runs."""
    return any(each.pid == pid for each in _running())


def _is_driver(process: Process) -> bool:
    return "jobs/__main__.py" in process.command and "python" in process.command.partition(" ")[0]


def _running() -> Iterator[Process]:
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            state, parent = (path / "stat").read_text().rpartition(") ")[2].split()[:2]
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if state != "Z":
            yield Process(int(path.name), int(parent), command)
