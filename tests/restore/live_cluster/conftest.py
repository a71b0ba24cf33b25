"""Real broker as the target of restores, and a restore of one topic into it."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.control.connecting import plaintext
from tests.restore.live_cluster.restoring import Restoring
from tests.restore.log_dir.lab import Lab
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster
from tierd.clock import SystemClock
from tierd.restore.live_cluster.target_cluster import TargetCluster, open_target


@pytest.fixture(scope="module")
def cluster(shared_kafka: MakeCluster) -> KafkaCluster:
    """Start one broker for all tests."""
    return shared_kafka(nodes=1)


@pytest.fixture
async def target(cluster: KafkaCluster) -> AsyncIterator[TargetCluster]:
    """Connect to the broker."""
    async with open_target(plaintext(cluster.bootstrap), clock=SystemClock(), patience_s=60) as opened:
        yield opened


@pytest.fixture
def restoring(tmp_path: Path, target: TargetCluster) -> Restoring:
    """Make an empty tier and a new name."""
    (tmp_path / "lab").mkdir()
    return Restoring(Lab(tmp_path / "lab"), target, tmp_path / "journal", f"restored-{uuid4().hex[:8]}")
