"""Alerts about push replication: each fires on a real Prometheus while the standby of a real leader is frozen."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.log_dirs import CLUSTER_ID, LogDirWriter, SegmentShape
from tests.scenarios.installation import Daemon, Settings
from tests.scenarios.push_hosts import PushHosts, batches_in, copies_of
from tests.scenarios.watched_daemons import WatchedDaemons
from tests.services.waiting import wait_until_stopped
from tierd.log import read_offset_checkpoint
from tierd.model import TopicPartition

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
        self.standby = watched.install("standby", [], standby)
        self.standing_by: Daemon = self.standby.daemon()

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

    def lose_last_batch(self) -> bytes:
        """Take away the last committed batch, as an older image of the leader's disk does; return it."""
        copies, end = copies_of(self.standby), self._partition.end_offset
        known = copies / "replication-offset-checkpoint"
        self.standing_by.wait_until(
            lambda: known.exists() and read_offset_checkpoint(known).get(TopicPartition("orders", 0)) == end,
            what="the high watermark of the standby",
        )
        last = max(batches_in(copies / "orders-0").items())
        self._partition.cut_back(last[0])
        return last[1]

    def damage(self) -> None:
        """Write what is no batch into the active segment."""
        with self._partition.active_segment.open("ab") as file:
            file.write(b"damaged" * 20)

    def kept_aside(self) -> list[bytes]:
        """Return the batches that the standby has set aside."""
        return [
            batch
            for directory in copies_of(self.standby).glob("orders-0.*-stray")
            for batch in batches_in(directory).values()
        ]

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


def test_leader_that_has_lost_committed_records_fires_at_the_standby_which_keeps_them(
    frozen: Hosts, watched: WatchedDaemons
) -> None:
    frozen.thaw()
    frozen.wait_protected()
    watched.require_silent("TierdLeaderLostRecords", frozen.standby)
    lost = frozen.lose_last_batch()
    watched.require_firing("TierdLeaderLostRecords", frozen.standby)
    assert frozen.kept_aside() == [lost]


def test_log_that_cannot_be_read_to_its_end_fires(frozen: Hosts, watched: WatchedDaemons) -> None:
    frozen.thaw()
    watched.require_silent("TierdPushCannotRead", frozen.leader)
    frozen.damage()
    watched.require_firing("TierdPushCannotRead", frozen.leader)
