"""Alerts about one daemon and its tier: each fires on a real Prometheus once a real daemon is in the state."""

import resource
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tests.scenarios.log_dirs import base_offsets
from tests.scenarios.stores import s3_section
from tests.scenarios.warm_tierd import WarmTierd
from tests.scenarios.watched_daemons import WatchedDaemons
from tests.services.faulty_path import FaultyPath
from tests.services.ports import free_port
from tests.services.s3 import S3Admin, S3Service
from tests.tiering.setups import delete_segment

pytestmark = [pytest.mark.service("prometheus"), pytest.mark.service("s3"), pytest.mark.service("toxiproxy")]

SHAPE = SegmentShape()
HELD_SEGMENTS = 5


class Host:
    """Host with a daemon, whose store can be cut off, and a log dir of one partition."""

    def __init__(self, folder: Path, watched: WatchedDaemons, store: FaultyPath, remote: dict[str, object]) -> None:
        self.watched, self.store = watched, store
        self._log_dir = LogDirWriter(folder / "kafka")
        self.partition = self._log_dir.add_partition("orders")
        self.partition.fill(rolled_segments=1, shape=SHAPE)
        self._log_dir.write_checkpoints()
        segment_bytes = min(file.stat().st_size for file in self.partition.path.glob("*.log"))  # of one batch
        self.tierd = watched.install(
            "tierd",
            [self._log_dir.path],
            {
                "hold": {"max_bytes": HELD_SEGMENTS * segment_bytes},
                "catalogue": {"interval": "1s"},
                "expire": {"interval": "300ms", "grace": "0s"},
                "control": {"mqtt": {"address": f"127.0.0.1:{free_port()}"}},
            },
            remote=remote,
        )
        self.daemon = self.tierd.daemon()

    def roll(self, segments: int = 1) -> None:
        """Have the broker roll segments."""
        for _ in range(segments):
            self.partition.roll()
            self.partition.fill(rolled_segments=0, shape=SHAPE)
        self._log_dir.write_checkpoints()

    def delete_rolled(self) -> None:
        """Delete all segments but the active one, as retention does."""
        for base, _ in pairwise(base_offsets(self.partition.path)):
            delete_segment(self.partition.path, base)

    def wait_copied(self) -> None:
        """Wait until all rolled segments are in the tier."""
        self.daemon.wait_copied({"orders-0": base_offsets(self.partition.path)[-1] - 1})

    def require_firing(self, name: str) -> dict[str, str]:
        """Wait until the alert fires of this daemon; return its labels."""
        return self.watched.require_firing(name, self.tierd)

    def require_silent(self, name: str) -> None:
        """Wait until the alert does not fire of this daemon."""
        self.watched.require_silent(name, self.tierd)


@pytest.fixture(scope="module")
def host(
    tmp_path_factory: pytest.TempPathFactory,
    watched: WatchedDaemons,
    s3_service: S3Service,
    s3_admin: S3Admin,
    toxiproxy_url: str,
) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("alerts")
    store = FaultyPath(toxiproxy_url, s3_service.endpoint_url)
    remote = s3_section(s3_service, s3_admin.create_bucket(), endpoint_url=store.endpoint_url)
    host = Host(folder, watched, store, remote)
    with host.daemon:
        host.wait_copied()
        yield host


def test_missing_mqtt_broker_fires(host: Host) -> None:
    host.require_firing("TierdMqttDisconnected")


def test_refused_configuration_fires_until_it_is_mended(host: Host) -> None:
    host.require_silent("TierdConfigRejected")
    good = host.tierd.config_file.read_text()
    host.tierd.config_file.write_text("log_dirs: 7")
    host.daemon.send_signal(signal.SIGHUP)
    host.require_firing("TierdConfigRejected")
    host.tierd.config_file.write_text(good)
    host.daemon.reload()
    host.require_silent("TierdConfigRejected")


def test_descriptors_near_the_limit_fire(host: Host) -> None:
    host.require_silent("TierdDescriptorsRunShort")
    former = resource.prlimit(host.daemon.pid, resource.RLIMIT_NOFILE)
    few = int(host.daemon.metrics()["process_open_fds"]) + 4
    resource.prlimit(host.daemon.pid, resource.RLIMIT_NOFILE, (few, former[1]))
    try:
        host.require_firing("TierdDescriptorsRunShort")
    finally:
        resource.prlimit(host.daemon.pid, resource.RLIMIT_NOFILE, former)


@pytest.fixture(scope="class")
def paused(host: Host) -> Iterator[Host]:
    host.require_silent("TierdFallsBehind")
    assert host.tierd.ask("pause").exit_code == 0
    host.roll(HELD_SEGMENTS + 2)
    yield host
    assert host.tierd.ask("resume").exit_code == 0
    host.wait_copied()


class TestPaused:
    """Alerts while copies are paused."""

    def test_segments_that_wait_for_too_long_fire(self, paused: Host) -> None:
        paused.require_firing("TierdFallsBehind")

    def test_due_segments_without_any_copy_fire(self, paused: Host) -> None:
        paused.require_firing("TierdCopiesNothing")

    def test_full_hold_fires(self, paused: Host) -> None:
        paused.require_firing("TierdHoldFull")


@pytest.fixture(scope="class")
def away(host: Host) -> Iterator[Host]:
    host.wait_copied()
    host.require_silent("TierdQuarantine")
    host.store.disable()
    host.roll()
    host.tierd.configure({"topics": {"defaults": {"retention": "1s"}}})
    host.daemon.reload()
    assert "retention_time" in host.tierd.ask("expire", "--once").output
    yield host
    host.tierd.configure({"topics": {"defaults": {"retention": -1}}})
    host.daemon.reload()
    host.store.enable()
    host.tierd.ask("sync", "orders-0")
    host.wait_copied()


class TestStoreAway:
    """Alerts while the object store is away."""

    def test_store_that_does_not_answer_fires_with_its_name(self, away: Host) -> None:
        assert away.require_firing("TierdServiceUnreachable")["service"] == "object_store"

    def test_daemon_that_is_not_ready_fires(self, away: Host) -> None:
        away.require_firing("TierdNotReady")

    def test_alert_fires_while_calls_to_the_store_fail(self, away: Host) -> None:
        away.require_firing("TierdStoreFails")

    def test_quarantined_partition_fires(self, away: Host) -> None:
        away.require_firing("TierdQuarantine")

    def test_catalogue_that_cannot_be_written_fires(self, away: Host) -> None:
        away.require_firing("TierdCatalogueOld")

    def test_expired_segments_that_stay_fire_with_their_topic(self, away: Host) -> None:
        assert away.require_firing("TierdDeletesNothing")["topic"] == "orders"


def test_daemon_that_has_ended_fires_and_segments_that_it_missed_fire_with_their_topic(host: Host) -> None:
    host.daemon.stop()
    host.require_firing("TierdDown")
    host.roll(2)
    host.delete_rolled()
    host.daemon.start()
    host.daemon.wait_ready()
    assert host.require_firing("TierdLostSegments")["topic"] == "orders"


ON_SMALL_DISK = (
    'mount -t tmpfs -o size=1m none "$0" && cp "$1" "$0" && head -c 1020K /dev/zero > "$0/full" && shift && exec "$@"'
)


def test_full_disk_and_missing_log_dir_fire_with_their_directories(tmp_path: Path, host: Host) -> None:
    present, full = LogDirWriter(tmp_path / "present"), tmp_path / "full"
    present.add_partition("orders").fill(rolled_segments=1, shape=SHAPE)
    present.write_checkpoints()
    full.mkdir()
    tierd = host.watched.install("disks", [present.path, full], {"hold": {"mode": "none"}})
    mounted = ("unshare", "--map-root-user", "--mount", "sh", "-c", ON_SMALL_DISK, str(full))
    with tierd.daemon(command=(*mounted, str(present.path / "meta.properties"), str(TIERD))) as daemon:
        daemon.wait_copied({"orders-0": 7})
        host.watched.require_silent("TierdLogDirOffline", tierd)
        assert host.watched.require_firing("TierdDiskFull", tierd)["directory"] == str(full)
        present.path.rename(tmp_path / "away")
        assert host.watched.require_firing("TierdLogDirOffline", tierd)["log_dir"] == str(present.path)
        (tmp_path / "away").rename(present.path)
        host.watched.require_silent("TierdLogDirOffline", tierd)


def test_second_daemon_over_the_same_metadata_fires(tmp_path: Path, host: Host, warm_tierd: WarmTierd) -> None:
    log_dir = LogDirWriter(tmp_path / "kafka")
    partition = log_dir.add_partition("orders")
    partition.fill(rolled_segments=1, shape=SHAPE)
    log_dir.write_checkpoints()
    store = {"backend": "filesystem", "filesystem": {"path": str(tmp_path / "store")}}
    shared = {"metadata": {"sqlite": {"path": str(tmp_path / "metadata.db")}}}
    first = host.watched.install("first", [log_dir.path], shared, remote=store)
    second = Installation(tmp_path / "second", [log_dir.path], remote=store, settings=shared, warm=warm_tierd)
    with first.daemon() as daemon:
        daemon.wait_copied({"orders-0": 7})
        host.watched.require_silent("TierdFenced", first)
        with second.daemon():
            partition.roll()
            partition.fill(rolled_segments=0, shape=SHAPE)
            log_dir.write_checkpoints()
            host.watched.require_firing("TierdFenced", first)
