"""Ports and files of a running session, and an attack on them from outside."""

import base64
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.pipeline.spark import port_attack
from tests.pipeline.spark.port_attack import SUCCESSES
from tests.scenarios.job_processes import Process, job_processes

NOBODY = 65534
_DEADLINE_S = 300.0
_LISTENS = "0A"
_LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


@dataclass(frozen=True, slots=True)
class Attack:
    """Message to one port, and its answer."""

    uid: int
    port: int
    attack: str
    kind: int
    answer: bytes

    @property
    def succeeded(self) -> bool:
        """Return True if the port answered as to a client of the session."""
        return self.kind in SUCCESSES


def attack_ports(ports: "list[int]") -> "list[Attack]":
    """Attack the ports as another user if possible, else as this user; neither knows the secret."""
    uid = NOBODY if os.geteuid() == 0 else os.geteuid()
    command = [sys.executable, "-I", "-S", port_attack.__file__, str(uid), *map(str, ports)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", timeout=_DEADLINE_S)
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    return [Attack(**{**each, "answer": base64.b64decode(each["answer"])}) for each in found]


def java_of(pid: int, *, said: str) -> Process:
    """Return the Java below ``pid`` with ``said`` in its arguments."""
    return next(each for each in job_processes(pid) if "/java" in each.command and said in each.command)


def listening(pid: int) -> "dict[int, bool]":
    """Return the TCP ports of a process; the value is True if only this host reaches the port."""
    own = {str(link.readlink()) for link in _links(pid)}
    ports: dict[int, bool] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            address, _, port = words[1].rpartition(":")
            if words[3] == _LISTENS and f"socket:[{words[9]}]" in own:
                ports[int(port, 16)] = address in _LOOPBACK
    return ports


def open_to_others(root: Path) -> "list[str]":
    """Return all paths below ``root``, with itself, that another user could read, write, enter or connect to."""
    found = []
    for path in (root, *root.rglob("*")):
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
        except FileNotFoundError:  # Spark has removed the file in the meantime
            continue
        if mode & 0o077 and not path.is_symlink():
            found.append(f"{mode:o} {path.relative_to(root)}")
    return found


def files_with(root: Path, text: bytes) -> "list[Path]":
    """Return the files below ``root`` that hold ``text``."""
    return [path for path in root.rglob("*") if path.is_file() and text in path.read_bytes()]


def _links(pid: int) -> "Iterator[Path]":
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if link.is_symlink():
            yield link
