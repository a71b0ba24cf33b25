"""Daemon killed repeatedly while a broker produces and rolls: it loses no record and leaves no orphan."""

import time
from random import Random

import pytest

from tests.scenarios.broker_steps import assert_reads_back, consume_all, let_retention_delete, rolled_through
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Installation
from tests.scenarios.stores import SpoilableS3
from tests.scenarios.traffic import TopicPlan, Traffic

pytestmark = [pytest.mark.service("kafka"), pytest.mark.service("s3"), pytest.mark.service("toxiproxy")]

KILLS = 50
SEED = 20_261_121
LATEST_KILL_S = 1.2
KILLED_AFTER_READY = 0.7  # of all kills; the others may hit the start as well
SLOW_KIB_PER_S = 6_000  # a 12 MiB segment takes long enough for kills to land between its parts

TOPICS = (
    TopicPlan(name="plain"),
    TopicPlan(name="idempotent", idempotent=True, codec="zstd"),
    TopicPlan(name="transactional", transactional=True),
    TopicPlan(name="many", partitions=6),
    TopicPlan(name="large", segment_bytes=12 << 20, value_bytes=100_000),
)


def test_fifty_kills_lose_no_record_and_leave_no_orphan(
    make_broker: MakeBroker, make_installation: MakeInstallation, spoilable_s3: SpoilableS3
) -> None:
    random = Random(SEED)
    broker = make_broker(log_dir_count=2)
    spoilable_s3.path.add("bandwidth", "upstream", rate=SLOW_KIB_PER_S)
    tierd = make_installation(broker.log_dirs, remote=spoilable_s3.remote(part_size="5MiB"))
    traffic = Traffic(broker, TOPICS, seed=SEED, pause_s=0.1)
    traffic.create_topics()

    daemon = tierd.daemon()
    with traffic:
        for _ in range(KILLS):
            daemon.start()
            if random.random() < KILLED_AFTER_READY:
                daemon.wait_ready()
            time.sleep(
                random.uniform(0, LATEST_KILL_S)
            )  # the kill is at a random moment, without waiting for any state
            daemon.kill()

    spoilable_s3.path.remove("bandwidth", "upstream")
    oracle = consume_all(broker, TOPICS)
    with tierd.daemon() as survivor:
        survivor.wait_copied(rolled_through(broker, TOPICS), deadline_s=60)
        survivor.wait_until(
            lambda: not leftovers(tierd, spoilable_s3, list(oracle)),
            what="the sweep of leftovers of the kills",
            deadline_s=30,
        )
        let_retention_delete(broker, TOPICS)
        assert_reads_back(tierd, oracle)
        survivor.wait_until(lambda: held_files(tierd) == [], what="the hold to be empty")
    said = daemon.log_file.read_text()
    assert said.count("dangling_segment_swept") >= 10, "the kills did not hit copies"
    assert said.count("unfinished_upload_aborted") >= 3, "the kills did not hit uploads"
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output


def leftovers(tierd: Installation, store: SpoilableS3, partitions: list[str]) -> list[str]:
    """Return objects of no finished segment, unfinished segments, and unfinished multipart uploads."""
    segments = [segment for partition in partitions for segment in tierd.segments(partition)]
    unfinished = [s["segment_id"] for s in segments if s["state"] != "COPY_SEGMENT_FINISHED"]
    finished = {s["segment_id"] for s in segments} - set(unfinished)
    keys = [key for key in store.admin.keys(store.bucket) if "/catalogue/" not in key]
    orphans = [
        key for key in keys if not key.endswith("/tierd.json") and not any(segment in key for segment in finished)
    ]
    return [*unfinished, *orphans, *store.admin.unfinished_uploads(store.bucket)]


def held_files(tierd: Installation) -> list[str]:
    """Return the files of the hold on disk."""
    hold_dir = tierd.state_dir / "hold"
    return [str(path) for path in hold_dir.rglob("*") if path.is_file()]
