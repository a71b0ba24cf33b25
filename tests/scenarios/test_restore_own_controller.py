"""Real broker beside its own controller: its wiped disk comes back, and the controller supplies the metadata."""

from pathlib import Path

import pytest

from tests.scenarios.broker_complaints import complaints
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.living_producers import LivingProducers
from tests.scenarios.lost_disks import (
    CLUSTER_ID,
    COMMITTED,
    ONE_OF_SEVERAL,
    ONLY_BROKER,
    PAGE_CLUSTER_ID,
    PAGE_LOG_DIR,
    PROPERTIES,
    SETTINGS,
    VERSIONS,
    assert_goes_on,
    ends_of,
    fill_and_copy,
    position,
    run_printed,
    wipe,
)

pytestmark = pytest.mark.service("kafka")


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_broker_beside_its_own_controller_comes_back_without_cluster_metadata(
    version: str, make_broker: MakeBroker, make_installation: MakeInstallation, tmp_path: Path
) -> None:
    broker = make_broker(version, properties=PROPERTIES, has_own_controller=True)
    (log_dir,) = broker.log_dirs
    tierd = make_installation(broker.log_dirs, settings=SETTINGS)
    living = LivingProducers(broker.bootstrap, seed=17)
    oracle = fill_and_copy(broker, tierd, living)
    identity = (log_dir / "meta.properties").read_text()
    broker.kill(1)
    wipe(log_dir)
    places = {PAGE_LOG_DIR: str(log_dir), PAGE_CLUSTER_ID: CLUSTER_ID, "kafka:9092": broker.bootstrap}

    answer = run_printed(tierd, ONE_OF_SEVERAL, "log-dir", {**places, "replica": "last-copy"})

    assert (answer["node"]["metadata_snapshot"], answer["node"]["findings"]) == ("", [])
    assert (log_dir / "meta.properties").read_text() == identity
    assert not (log_dir / "__cluster_metadata-0").exists()
    ends = ends_of(answer)
    broker.start(1)
    run_printed(tierd, ONLY_BROKER, "groups", places)
    assert {each: position(broker, *each) for each in COMMITTED} == COMMITTED
    assert complaints(tmp_path / "kafka" / "node1" / "server.log") == []
    assert_goes_on(broker, oracle, ends, living)
