"""Random faults of three brokers and their daemons, for any time; then the tier is audited.

::

    python -m tests.soak.several_brokers --seconds 3600 --seed 4 --store postgres
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

from tests.scenarios.chaos import ACTIONS, BUSY, BUSY_PARTITIONS
from tests.scenarios.cluster_lab import NODES, ClusterLab
from tests.scenarios.installation import Settings
from tests.scenarios.stores import SpoilableS3
from tests.scenarios.tier_audit import assert_no_bugs, assert_verified, assert_whole, wait_quiet
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.faulty_path import FaultyPath
from tests.services.kafka_cluster import KafkaCluster, require_kafka
from tests.services.postgres import PostgresService
from tests.services.s3 import S3Admin, S3Service
from tests.services.services import Services

AUDIT_EVERY = 8  # actions


def main() -> int:
    """Run the command line; return its exit code. A failed audit is an exception, and leaves the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", choices=["postgres", "redis"], default="postgres")
    parser.add_argument("--kafka", default="4.3.1")
    arguments = parser.parse_args()
    require_kafka(arguments.kafka)
    folder = Path(tempfile.mkdtemp(prefix="tierd-soak-"))
    print(f"logs below {folder}", flush=True)
    with ExitStack() as stack:
        lab = _lab(stack, folder, arguments)
        _soak(lab, Random(arguments.seed), seconds=arguments.seconds)
    return 0


def _lab(stack: ExitStack, folder: Path, arguments: argparse.Namespace) -> ClusterLab:
    services = stack.enter_context(Services())
    s3 = S3Service.of(services.start("s3"), services)
    toxiproxy_url = services.start("toxiproxy")["TIERD_TEST_TOXIPROXY_URL"]
    cluster = stack.enter_context(KafkaCluster(folder / "kafka", nodes=3, version=arguments.kafka))
    admin = S3Admin(s3)
    stack.callback(admin.close)
    return stack.enter_context(
        ClusterLab(
            folder,
            cluster,
            metadata=_metadata(services, arguments.store),
            s3=SpoilableS3(s3, admin.create_bucket(), admin, FaultyPath(toxiproxy_url, s3.endpoint_url)),
            own_paths={node: FaultyPath(toxiproxy_url, s3.endpoint_url) for node in NODES},
            warm=stack.enter_context(WarmTierd()),
            seed=arguments.seed,
        )
    )


def _metadata(services: Services, store: str) -> Settings:
    if store == "redis":
        return {"backend": "redis", "redis": {"url": services.start("redis")["TIERD_TEST_REDIS_URL"]}}
    postgres = PostgresService(services.start("postgres")["TIERD_TEST_POSTGRES_DSN"], services)
    return {"backend": "postgres", "postgres": {"dsn": postgres.create_database()}}


def _soak(lab: ClusterLab, random: Random, *, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    for topic in BUSY:
        lab.traffic.create(topic)
    lab.traffic.switch_on(*BUSY)
    done = 0
    while time.monotonic() < end_s:
        action = random.choice(ACTIONS)
        print(f"{done}: {action.__name__}", flush=True)
        action(lab, random)
        done += 1
        if done % AUDIT_EVERY == 0:
            assert_no_bugs(lab)
    lab.traffic.stop()
    lab.wait_in_sync(BUSY_PARTITIONS)
    lab.wait_copied(BUSY_PARTITIONS)
    wait_quiet(lab)
    assert_whole(lab, BUSY_PARTITIONS)
    assert_verified(lab.hosts.values())
    assert_no_bugs(lab)
    print(f"{done} actions, and the tier is whole")


if __name__ == "__main__":
    sys.exit(main())
