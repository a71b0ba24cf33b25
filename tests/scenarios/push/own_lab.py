"""A leader whose logs tierd owns, with producers in its process, and its standbys: all processes of their own."""

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.scenarios.command import run_tierd
from tests.scenarios.installation import Daemon, Installation, Settings
from tests.scenarios.push.producing_daemon import PARTITIONS
from tests.scenarios.push_hosts import PushHosts, batches_in, copies_of
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.waiting import wait_until

LEADER, STANDBY = 1, 2
CLUSTER_ID: Final = "own-cluster"
NAMES: Final = tuple(map(str, PARTITIONS))
DEADLINE_S: Final = 90.0
_TRANSACTIONAL, _CONTROL = 0x10, 0x20  # attributes of a batch
_TIMES: Final = {  # short, so that a test sees what they do
    "request": {"timeout": "2s"},
    "session": {"unacked_max": "3s", "keepalive": "500ms", "idle_max": "2s", "lag_max": "6s"},
}


@dataclass(frozen=True, slots=True)
class SafeRecord:
    """Record that a producer took for safe."""

    offset: int
    value: str
    known_at_s: float


class OwnLab:
    """Leader and standbys; a context manager in which all of them run, and the producers produce."""

    def __init__(
        self,
        root: Path,
        warm: WarmTierd,
        *,
        standbys: int = 1,
        addresses: Mapping[int, str] | None = None,
        hosts: PushHosts | None = None,
        settings: Settings | None = None,
        push: Mapping[int, Settings] | None = None,
        standby_command: Sequence[str] | None = None,
    ) -> None:
        """Prepare.

        Args:
            root: of all directories.
            warm: forks the daemons.
            standbys: their number.
            addresses: at which peers reach a node, by node; by default that of its port.
            hosts: has the ports.
            settings: of every daemon.
            push: keys of section ``push``, by node.
            standby_command: program that runs ``tierd`` for a standby, given the program behind its arguments.
        """
        self._root = root
        self._settings = settings or {}
        self._addresses = addresses or {}
        self._push = push or {}
        self.hosts = hosts or PushHosts(1 + standbys)
        self._warm = warm
        self.journal_file = root / "journal"
        self.log_dir = root / "leader-logs"
        self.leader = self._make_leader()
        self.standbys = {node: self._standby(node) for node in range(STANDBY, STANDBY + standbys)}
        self.daemons = {LEADER: self._leader_daemon()} | {
            node: installation.daemon(command=standby_command) for node, installation in self.standbys.items()
        }
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._kill_all)
            for daemon in self.daemons.values():
                daemon.start()
            for daemon in self.daemons.values():
                daemon.wait_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # ---------------------------------------------------------------- what the operator sees

    def sent(self) -> list[dict[str, Any]]:
        """Return the standbys of all partitions, as the status of the leader has them."""
        partitions = self.daemons[LEADER].status()["push"]["leader"]["partitions"]
        return [{**standby, "partition": each["partition"]} for each in partitions for standby in each["standbys"]]

    def status(self, node: int = LEADER) -> str:
        """Return what ``tierd status`` prints at a node."""
        installation = self.leader if node == LEADER else self.standbys[node]
        return installation.ask("status").output

    def wait_status(self, *texts: str, node: int = LEADER) -> None:
        """Wait until ``tierd status`` prints each text at a node."""
        wait_until(
            lambda: all(text in (said := self.status(node)) for text in texts) and bool(said),
            what=f"the status of node {node} to say {texts}",
            deadline_s=DEADLINE_S,
            last_seen=lambda: self.status(node),
            interval_s=0.3,
        )

    def wait_status_without(self, *texts: str) -> None:
        """Wait until ``tierd status`` does not print all the texts together; what it says may be a second old."""
        wait_until(
            lambda: bool(said := self.status()) and not all(text in said for text in texts),
            what=f"the status not to say {texts}",
            deadline_s=DEADLINE_S,
            last_seen=self.status,
            interval_s=0.3,
        )

    def wait_protected(self) -> None:
        """Wait until every copy is in a session, and grows."""
        wanted = len(NAMES) * len(self.standbys)
        wait_until(
            lambda: sum(each["mode"] == "push" for each in self.sent()) == wanted,
            what=f"{wanted} sessions",
            deadline_s=DEADLINE_S,
            last_seen=self.status,
            interval_s=0.1,
        )
        self.wait_more_safe()

    # ---------------------------------------------------------------- records

    def safe(self) -> dict[str, list[SafeRecord]]:
        """Return what the producers took for safe until now, by partition."""
        found: dict[str, list[SafeRecord]] = {name: [] for name in NAMES}
        for line in self.journal_file.read_text().splitlines(keepends=True):
            if line.endswith("\n") and "\t" in line:  # others begin the life of a process
                name, offset, value, known_at_s = line.split("\t")
                found[name].append(SafeRecord(int(offset), value, float(known_at_s)))
        return found

    def wait_more_safe(self) -> None:
        """Wait until the producers of every partition took more for safe than now."""
        wait_until(self.journal_file.exists, what="producers", deadline_s=DEADLINE_S)
        before = {name: len(records) for name, records in self.safe().items()}
        wait_until(
            lambda: all(len(records) > before[name] for name, records in self.safe().items()),
            what="producers to get on",
            deadline_s=DEADLINE_S,
            last_seen=self.status,
        )

    def assert_same_copies(self) -> None:
        """Stop the leader in an orderly way; fail unless each copy then has what the leader has, byte for byte."""
        self.wait_protected()
        assert self.daemons[LEADER].stop() == 0, self.daemons[LEADER].log_tail()
        for node, standby in self.standbys.items():
            for name in NAMES:
                led, copied = batches_in(self.log_dir / name), batches_in(copies_of(standby) / name)
                lacking = {offset: data for offset, data in led.items() if copied.get(offset) != data}
                assert copied.items() <= led.items(), f"{name} at node {node} has what the leader has not"
                safe = max((record.offset for record in self.safe()[name]), default=-1)
                assert all(offset > safe for offset in lacking), f"{name} at node {node} lacks {sorted(lacking)[:3]}"

    # ---------------------------------------------------------------- the loss of the leader's host

    def lose_host(self) -> None:
        """End the leader as a power cut does, and remove its directories."""
        os.kill(self.daemons[LEADER].pid, signal.SIGKILL)
        self.daemons[LEADER].kill()
        shutil.rmtree(self.log_dir)
        shutil.rmtree(self.leader.root)
        self.leader = self._make_leader()

    def restore(self) -> Path:
        """Restore from the tier and the copies; return the log dir."""
        standbys = [word for each in self.standbys.values() for word in ("--standby", str(copies_of(each)))]
        mode = ("--mode", "last-copy", "--hold-retention", "--from-bucket", "--cluster-id", CLUSTER_ID)
        ended = self.leader.ask("restore", "log-dir", "--into", str(self.log_dir), *mode, *standbys, "--yes", "--json")
        assert ended.exit_code == 0, ended.output
        return self.log_dir

    def assert_restored(self) -> None:
        """Fail unless the restored logs have all that was safe, and nothing of an aborted or open transaction."""
        for name, records in self.safe().items():
            read = run_tierd("log", "read", str(self.log_dir / name), "--committed", "--json")
            assert read.exit_code == 0, read.output
            found = {line["offset"]: line["value"] for line in read.json_lines()}
            missing = [record.offset for record in records if record.offset not in found]
            assert not missing, f"{name}: {len(missing)} of {len(records)} safe records are gone: {missing[:3]}"
            assert records, f"{name}: nothing was safe"
            assert not open_transactions(self.log_dir / name), f"{name}: a transaction has no end"

    def twin(self, node: int, *, listen: str) -> Installation:
        """Return another standby with the identity of one, and with directories and an address of its own."""
        root = self._root / f"twin-{node}"
        section = self.hosts.standby(root, CLUSTER_ID, node, **_TIMES)
        section["push"]["listen"] = listen
        return self._install(f"twin-{node}", section.pop("log_dirs"), node, section)

    # ---------------------------------------------------------------- parts

    def _kill_all(self) -> None:
        for daemon in self.daemons.values():
            if daemon.is_running:
                daemon.kill()

    def _make_leader(self) -> Installation:
        self.log_dir.mkdir()
        section = self.hosts.leader(LEADER)
        section["push"] |= {**_TIMES, **self._push.get(LEADER, {})}
        return self._install("leader", [{"path": str(self.log_dir), "owner": "tierd"}], LEADER, section)

    def _leader_daemon(self) -> Daemon:
        program = (sys.executable, "-m", "tests.scenarios.push.producing_daemon", str(self.journal_file))
        return self.leader.daemon(command=program)

    def _standby(self, node: int) -> Installation:
        root = self._root / f"standby-{node}"
        section = self.hosts.standby(root, CLUSTER_ID, node, **_TIMES, **self._push.get(node, {}))
        return self._install(f"standby-{node}", section.pop("log_dirs"), node, section)

    def _install(self, name: str, log_dirs: list[Settings], node: int, section: Settings) -> Installation:
        tier = {"backend": "filesystem", "filesystem": {"path": str(self._root / f"tier-{name}")}}
        for peer in section["push"]["peers"]:
            peer["address"] = self._addresses.get(peer["node_id"], peer["address"])
        settings = {
            "cluster_id": CLUSTER_ID,
            "node_id": node,
            "log_dirs": log_dirs,
            "topics": {"overrides": [{"match": ".*", "segment_bytes": "64KiB"}]},
            **section,
            **self._settings,
        }
        return Installation(self._root / name, [], remote=tier, settings=settings, warm=self._warm)


def open_transactions(directory: Path) -> set[int]:
    """Return the producer ids whose last transaction has no marker in a partition directory."""
    found: set[int] = set()
    for _, batch in sorted(batches_in(directory).items()):
        attributes, producer_id = int.from_bytes(batch[21:23], "big"), int.from_bytes(batch[43:51], "big")
        if attributes & _CONTROL:
            found.discard(producer_id)
        elif attributes & _TRANSACTIONAL:
            found.add(producer_id)
    return found
