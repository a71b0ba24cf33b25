"""Three real brokers with a tierd each, one Redis, one bucket: the tier is whole after any faults."""

import pytest

from tests.scenarios.cluster_story import assert_survives_faults
from tests.scenarios.conftest import MakeClusterLab

pytestmark = [pytest.mark.service("kafka"), pytest.mark.service("s3"), pytest.mark.service("redis")]


@pytest.mark.spec("remote-tiering 257")
def test_random_faults_of_brokers_and_daemons_lose_no_record_and_leave_no_orphan(
    make_cluster_lab: MakeClusterLab, redis_url: str
) -> None:
    assert_survives_faults(make_cluster_lab({"backend": "redis", "redis": {"url": redis_url}}))
