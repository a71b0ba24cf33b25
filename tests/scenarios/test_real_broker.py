"""Real broker and real S3 server: records that the retention of the broker deleted are read back from the tier."""

import pytest

from tests.scenarios.broker_steps import assert_reads_back, consume_all, let_retention_delete, rolled_through
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Settings
from tests.scenarios.stores import SpoilableS3
from tests.scenarios.traffic import EVERY_KIND, TopicPlan, Traffic

pytestmark = [pytest.mark.service("kafka"), pytest.mark.service("s3")]


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_every_kind_of_topic_is_read_back_after_the_retention_of_the_broker(
    version: str, make_broker: MakeBroker, make_installation: MakeInstallation, s3_remote: Settings
) -> None:
    broker = make_broker(version, log_dir_count=2)
    traffic = Traffic(broker, EVERY_KIND, seed=3)
    tierd = make_installation(broker.log_dirs, remote=s3_remote)
    with tierd.daemon() as daemon:
        traffic.create_topics()
        traffic.fill(rolled_segments=3)
        oracle = consume_all(broker, EVERY_KIND)
        daemon.wait_copied(rolled_through(broker, EVERY_KIND))
        let_retention_delete(broker, EVERY_KIND)

        assert_reads_back(tierd, oracle)

    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output


def test_segments_that_the_broker_deletes_while_the_store_is_down_are_not_lost(
    make_broker: MakeBroker, make_installation: MakeInstallation, spoilable_s3: SpoilableS3
) -> None:
    topics = (TopicPlan(name="plain"), TopicPlan(name="transactional", transactional=True))
    broker = make_broker()
    tierd = make_installation(broker.log_dirs, remote=spoilable_s3.remote())
    traffic = Traffic(broker, topics, seed=4)
    with tierd.daemon() as daemon:
        traffic.create_topics()
        traffic.fill(rolled_segments=1)
        daemon.wait_copied(rolled_through(broker, topics))
        spoilable_s3.path.disable()
        traffic.fill(rolled_segments=6)
        oracle = consume_all(broker, topics)
        rolled = rolled_through(broker, topics)
        daemon.wait_until(lambda: daemon.metrics()["tierd_hold_segments"] >= 10, what="the hold to keep the segments")
        let_retention_delete(broker, topics)
        spoilable_s3.path.enable()

        daemon.wait_copied(rolled, deadline_s=60)

        assert_reads_back(tierd, oracle)
        daemon.wait_until(lambda: daemon.metrics()["tierd_hold_segments"] == 0, what="the hold to be empty")
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output
    assert spoilable_s3.admin.unfinished_uploads(spoilable_s3.bucket) == []


def test_segments_are_copied_although_the_broker_lost_its_producer_files(
    make_broker: MakeBroker, make_installation: MakeInstallation, s3_remote: Settings
) -> None:
    topics = (TopicPlan(name="plain"), TopicPlan(name="transactional", transactional=True))
    broker = make_broker()
    traffic = Traffic(broker, topics, seed=6)
    traffic.create_topics()
    traffic.fill(rolled_segments=3)
    for topic in topics:
        active = f"{max(broker.base_offsets(topic.name, 0)):020d}.txnindex"  # is never copied; reads rely on it
        for log_dir in broker.log_dirs:
            for lost in [*log_dir.glob(f"{topic.name}-*/*.snapshot"), *log_dir.glob(f"{topic.name}-*/*.txnindex")]:
                if lost.name != active:
                    lost.unlink()
    tierd = make_installation(broker.log_dirs, remote=s3_remote)
    with tierd.daemon() as daemon:
        oracle = consume_all(broker, topics)
        daemon.wait_copied(rolled_through(broker, topics))
        let_retention_delete(broker, topics)

        assert_reads_back(tierd, oracle)

    assert "transaction_index_rebuilt" in daemon.log_file.read_text()
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output
