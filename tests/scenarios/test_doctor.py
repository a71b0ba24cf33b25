"""``tierd doctor`` during an outage of a real object store: one page, in time, and a bundle without credentials."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.log_dirs import LogDirWriter, write_log_dir
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Daemon, Installation
from tests.scenarios.stores import SpoilableS3

PARTITION = "orders-0"
RECOVERY_DEADLINE_S = 60.0


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDirWriter:
    return write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=1, topic="orders")


def examined(tierd: Installation, daemon: Daemon, *options: str) -> dict[str, Any]:
    ended = tierd.ask("doctor", "--json", "--timeout", "20", "--log", str(daemon.log_file), *options)
    answer: dict[str, Any] = ended.json()
    assert ended.exit_code == (0 if answer["ok"] else 1), ended.output
    return answer


def lose_store(daemon: Daemon, log_dir: LogDirWriter, store: SpoilableS3) -> None:
    """Disable the object store while a segment is due, and wait for the outage."""
    store.path.disable()
    log_dir.roll()
    daemon.wait_until(lambda: daemon.status()["outages"], what="the outage")


@pytest.mark.service("s3")
@pytest.mark.service("toxiproxy")
def test_outage_of_the_store_is_the_first_finding_until_it_is_over_and_the_bundle_has_no_credentials(
    log_dir: LogDirWriter, make_installation: MakeInstallation, spoilable_s3: SpoilableS3, tmp_path: Path
) -> None:
    tierd = make_installation([log_dir.path], remote=spoilable_s3.remote())
    tierd.config_file.chmod(0o600)
    bundle = tmp_path / "report.tar.gz"
    with tierd.daemon() as daemon:
        daemon.wait_copied({PARTITION: 7})
        sound = examined(tierd, daemon)
        lose_store(daemon, log_dir, spoilable_s3)
        ill = examined(tierd, daemon, "--bundle", str(bundle))
        spoilable_s3.path.enable()
        daemon.wait_copied({PARTITION: 11}, deadline_s=RECOVERY_DEADLINE_S)
        daemon.wait_until(
            lambda: daemon.is_ready() and not daemon.status()["states"].get("quarantined"),
            what="the daemon to be ready again, and all tasks of the partition to work",
            deadline_s=RECOVERY_DEADLINE_S,
        )
        later = examined(tierd, daemon, "--offline")

    assert sound["ok"], sound["findings"]
    first = ill["findings"][0]
    assert (first["urgency"], first["area"]) == ("now", "object store")
    assert first["problem"].startswith("has not answered the daemon for ")
    assert first["command"] == f"tierd check-config --online --config {tierd.config_file}"
    assert [each["problem"] for each in ill["findings"] if each["area"] == "object store"] == [first["problem"]]
    assert [each for each in later["findings"] if each["urgency"] == "now"] == []
    assert_no_credentials(bundle, spoilable_s3)


def assert_no_credentials(bundle: Path, store: SpoilableS3) -> None:
    with tarfile.open(bundle) as archive:
        contents = {entry.name: archive.extractfile(entry) for entry in archive}
        texts = {name: file.read().decode() for name, file in contents.items() if file is not None}
    assert store.bucket in texts["tierd-doctor/config.json"]
    assert '"object_store"' in texts["tierd-doctor/status.json"]
    assert "service_unreachable" in texts["tierd-doctor/log.txt"]
    for secret in (store.service.access_key_id, store.service.secret_access_key):
        assert [name for name, text in texts.items() if secret in text] == []
