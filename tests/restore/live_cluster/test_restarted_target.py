"""A restore whose target restarts meanwhile: a broker that forgets producers by the times of their records."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.control.connecting import plaintext
from tests.restore.live_cluster.restoring import Restoring, copied, plan_of
from tests.restore.log_dir.lab import Lab
from tests.services.kafka_fixtures import MakeCluster
from tierd.clock import SystemClock
from tierd.control import KafkaConnection, Request
from tierd.errors import KafkaUnreachableError
from tierd.restore.live_cluster.target_cluster import open_target

pytestmark = pytest.mark.service("kafka")


async def test_batch_whose_answer_is_lost_at_a_restart_of_the_broker_is_in_the_target_once(
    kafka_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = kafka_cluster(nodes=1)
    (tmp_path / "lab").mkdir()
    receive, answers = KafkaConnection.receive, count(1)

    async def lost_at_a_restart(
        connection: KafkaConnection, request: Request[Any], number: int, *, timeout_s: float
    ) -> Any:  # noqa: ANN401 - of the connection
        answer = await receive(connection, request, number, timeout_s=timeout_s)
        if next(answers) != 3:
            return answer
        cluster.stop(1)
        cluster.start(1)
        raise KafkaUnreachableError("the connection broke", remedy="wait")

    monkeypatch.setattr(KafkaConnection, "receive", lost_at_a_restart)
    async with open_target(plaintext(cluster.bootstrap), clock=SystemClock(), patience_s=60) as target:
        restoring = Restoring(Lab(tmp_path / "lab"), target, tmp_path / "journal", "restored")
        plan = plan_of(restoring, await copied(restoring, tmp_path))  # of 1970

        assert (await restoring.run(plan)).problem is None

        assert restoring.ranges() == [(0, 60, 0)]
    assert cluster.end_offset("restored", 0) == 60
