"""Answers to DescribeCluster."""

import pytest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from tests.fakes.served_partitions import CLUSTER_ID, FIRST_NODE, SECOND_NODE
from tests.serve.kafka.answers.asking import AskedEndpoint, versions


def _request(*, endpoint_type: int = 1, operations: bool = False) -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=operations,
        endpoint_type=i8(endpoint_type),
        include_fenced_brokers=True,
    )


@pytest.mark.parametrize("version", versions(60))
async def test_cluster_is_the_live_endpoints(version: int) -> None:
    answer = await AskedEndpoint().answer(_request(), DescribeClusterResponse, version=version)
    assert answer.error_code is ErrorCode.none
    assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, FIRST_NODE.node_id)
    assert [(each.broker_id, each.host, each.port, each.rack, each.is_fenced) for each in answer.brokers] == [
        (each.node_id, each.host, each.port, each.rack, False) for each in (FIRST_NODE, SECOND_NODE)
    ]
    assert answer.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", versions(60))
async def test_operations_on_the_cluster_are_reads(version: int) -> None:
    answer = await AskedEndpoint().answer(_request(operations=True), DescribeClusterResponse, version=version)
    assert answer.cluster_authorized_operations == 1 << 8 | 1 << 10


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)],
)
async def test_controllers_are_not_here(endpoint_type: int, code: ErrorCode) -> None:
    answer = await AskedEndpoint().answer(_request(endpoint_type=endpoint_type), DescribeClusterResponse)
    assert answer.error_code is code
    assert answer.error_message
    assert answer.brokers == ()
