"""Real broker that loses its whole disk and gets it back, and then a new cluster that gets what the first one had."""

import base64
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.scenarios.broker_complaints import complaints
from tests.scenarios.broker_steps import Oracle, consume_all, rolled_through
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Installation
from tests.scenarios.living_producers import LivingProducers
from tests.scenarios.lost_disks import (
    ALL_TOPICS,
    CLUSTER_ID,
    COMMITTED,
    GROUP,
    ONLY_BROKER,
    PAGE_CLUSTER_ID,
    PAGE_LOG_DIR,
    PROPERTIES,
    SETTINGS,
    TOPICS,
    VERSIONS,
    assert_goes_on,
    assert_offsets_new,
    assert_serves,
    below,
    catalogued_node,
    ends_of,
    fill_and_copy,
    position,
    run_printed,
    wipe,
    write_everywhere,
)
from tests.scenarios.oracle import Record
from tests.scenarios.traffic import Traffic
from tests.services.kafka_cluster import KafkaBroker
from tierd.restore import parse_cluster_snapshot

pytestmark = pytest.mark.service("kafka")

NEW_CLUSTER_ID = "dGllcmQtdGVzdGtpdC0wMg"
WHOLE_CLUSTER = "The whole cluster is gone"


@pytest.mark.parametrize("version", VERSIONS)
def test_only_broker_comes_back_after_its_disk_was_wiped_and_a_new_cluster_gets_its_topics(
    version: str,
    make_broker: MakeBroker,
    make_installation: MakeInstallation,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    broker = make_broker(version, properties=PROPERTIES)
    (log_dir,) = broker.log_dirs
    tierd = make_installation(broker.log_dirs, settings=SETTINGS)
    living = LivingProducers(broker.bootstrap, seed=17)
    oracle = fill_and_copy(broker, tierd, living)
    identity = (log_dir / "meta.properties").read_text()
    snapshot = catalogued_node(tierd)
    known = parse_cluster_snapshot(snapshot["metadata_snapshot_name"], base64.b64decode(snapshot["secret"]["plain"]))
    assert known.controllers == known.brokers == {1}
    assert {topic.name for topic in ALL_TOPICS} <= set(known.topics.values())
    assert known.next_producer_id > 0
    ids = {topic.name: broker.topic_id(topic.name) for topic in ALL_TOPICS}
    broker.kill(1)
    wipe(log_dir)
    places = {PAGE_LOG_DIR: str(log_dir), PAGE_CLUSTER_ID: CLUSTER_ID, "kafka:9092": broker.bootstrap}

    answer = run_printed(tierd, ONLY_BROKER, "log-dir", places)

    assert answer["node"]["metadata_snapshot"] == known.name
    assert (log_dir / "meta.properties").read_text() == identity
    ends = ends_of(answer)
    assert ends.keys() == oracle.keys()
    broker.start(1)
    run_printed(tierd, ONLY_BROKER, "groups", places)
    assert {each: position(broker, *each) for each in COMMITTED} == COMMITTED
    assert {topic.name: broker.topic_id(topic.name) for topic in ALL_TOPICS} == ids
    assert complaints(tmp_path / "kafka" / "node1" / "server.log") == []
    assert_goes_on(broker, oracle, ends, living)
    catalogued = positions_of(tierd)
    with tierd.daemon() as daemon:
        daemon.wait_copied(rolled_through(broker, TOPICS))
        daemon.wait_until(lambda: positions_of(tierd) > catalogued, what="later positions in the catalogue")
        daemon.wait_until(lambda: f'"{GROUP}"' in tierd.ask("groups", "--json").output, what="the group")
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output
    gone = consume_all(broker, ALL_TOPICS)
    gone["compacted-0"] = below(oracle, ends)["compacted-0"]  # the tier has of it what was restored, and no more
    broker.kill(1)
    wipe(log_dir)
    monkeypatch.setenv("KAFKA_CLUSTER_ID", NEW_CLUSTER_ID)
    new = make_broker(version, folder="new", properties=PROPERTIES)
    come_back_in(new, gone, tierd)
    assert complaints(tmp_path / "new" / "node1" / "server.log") == []


def come_back_in(new: KafkaBroker, oracle: Oracle, tierd: Installation) -> None:
    """Import the topics of a cluster that is gone into a new one, and write there."""
    Traffic(new, ALL_TOPICS, seed=17).create_topics()
    new.stop(1)
    tierd.configure({**SETTINGS, "cluster_id": CLUSTER_ID, "node_id": 1})
    places = {"/var/lib/kafka-new/data": str(new.log_dirs[0]), PAGE_CLUSTER_ID: CLUSTER_ID}

    answer = run_printed(tierd, WHOLE_CLUSTER, "log-dir", places)

    ends = ends_of(answer)
    assert ends.keys() == oracle.keys()
    new.start(1)
    run_printed(tierd, WHOLE_CLUSTER, "groups", {"new-kafka:9092": new.bootstrap})
    assert {each: position(new, *each) for each in COMMITTED} == COMMITTED
    committed: Oracle = {name: (without_epochs(read), without_epochs(read)) for name, (_, read) in oracle.items()}
    found = consume_all(new, ALL_TOPICS)
    imported: Oracle = {name: (without_epochs(every), without_epochs(read)) for name, (every, read) in found.items()}
    assert_serves(imported, below(committed, ends))
    living = LivingProducers(new.bootstrap, seed=18)  # their ids are those of producers of the old cluster
    for _ in range(3):
        living.send()
    write_everywhere(new, seed=18)
    after = consume_all(new, ALL_TOPICS)
    living.assert_nothing_lost(after)
    assert_offsets_new(after, oracle, ends)


def positions_of(tierd: Installation) -> int:
    """Return the number of positions objects in the catalogue."""
    return len(list(tierd.store_dir.glob("*/catalogue/positions/*")))


def without_epochs(found: Iterable[Record]) -> list[Record]:
    """Return the records with the leader epoch that an import gives them."""
    return [{**record, "leaderEpoch": 0} for record in found]
