"""Alerts about push replication: each fires on a real Prometheus while the standby of a real leader is frozen."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.log_dirs import CLUSTER_ID, LogDirWriter, SegmentShape
from tests.scenarios.installation import Daemon, Settings
from tests.scenarios.push_hosts import PushHosts
from tests.scenarios.watched_daemons import WatchedDaemons
from tests.services.waiting import wait_until_stopped

pytestmark = pytest.mark.service("prometheus")

TIMES: Settings = {
    "request": {"timeout": "2s"},
    "session": {"unacked_max": "3s", "keepalive": "500ms", "idle_max": "2s", "lag_max": "6s"},
}


class Hosts:
    """A leader and its standby, each with a daemon."""

    def __init__(self, folder: Path, watched: WatchedDaemons) -> None:
        self._log_dir = LogDirWriter(folder / "kafka")
        self._partition = self._log_dir.add_partition("orders")
        self.append()
        hosts = PushHosts()
        self.leader = watched.install("leader", [self._log_dir.path], hosts.leader(**TIMES))
        standby = hosts.standby(folder / "standby", CLUSTER_ID, **TIMES)
        self.leading = self.leader.daemon()
        self.standing_by: Daemon = watched.install("standby", [], standby).daemon()

    def append(self) -> None:
        """Write a batch into the active segment."""
        self._partition.fill(rolled_segments=0, shape=SegmentShape())
        self._log_dir.write_checkpoints()

    def wait_protected(self) -> None:
        """Wait until a session has brought all records to the standby."""
        self.leading.wait_until(
            lambda: (
                (metrics := self.leading.metrics()).get('tierd_push_active_sessions{peer="2"}') == 1
                and metrics["tierd_unprotected_max_bytes"] == 0
            ),
            what="a session",
        )

    def freeze(self) -> None:
        """Freeze the standby, and write a batch that it does not get; return when the session has ended."""
        self.standing_by.send_signal(signal.SIGSTOP)
        wait_until_stopped(self.standing_by.pid)
        self.append()
        self.leading.wait_until(
            lambda: self.leading.metrics()['tierd_push_active_sessions{peer="2"}'] == 0, what="the end of the session"
        )

    def thaw(self) -> None:
        """Let the standby continue."""
        self.standing_by.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory, watched: WatchedDaemons) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path_factory.mktemp("hosts"), watched)
    with hosts.leading, hosts.standing_by:
        hosts.wait_protected()
        watched.require_silent("TierdUnprotected", hosts.leader)
        hosts.freeze()
        yield hosts
        hosts.thaw()


def test_records_on_one_host_only_fire(frozen: Hosts, watched: WatchedDaemons) -> None:
    watched.require_firing("TierdUnprotected", frozen.leader)


def test_standby_that_lacks_records_fires_with_its_id(frozen: Hosts, watched: WatchedDaemons) -> None:
    assert watched.require_firing("TierdStandbyIsBehind", frozen.leader)["peer"] == "2"


def test_standby_that_cannot_be_told_of_the_end_fires(frozen: Hosts, watched: WatchedDaemons) -> None:
    watched.require_firing("TierdPushIsStuck", frozen.leader)


def test_sessions_that_end_again_and_again_fire(frozen: Hosts, watched: WatchedDaemons) -> None:
    frozen.thaw()
    frozen.wait_protected()
    watched.require_silent("TierdPushSessionsEnd", frozen.leader)
    frozen.freeze()
    watched.require_firing("TierdPushSessionsEnd", frozen.leader)
