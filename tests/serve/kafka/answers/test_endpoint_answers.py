"""Answers about the endpoints: ApiVersions, DescribeCluster and ListPartitionReassignments."""

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse
from kio.static.primitive import i8

from tests.fakes.served_partitions import CLUSTER_ID, FIRST_NODE, SECOND_NODE
from tests.serve.kafka.answers.asking import AskedEndpoint, versions
from tierd.serve.kafka.wire.api_table import API_TABLE

_VERSIONS_REQUEST = ApiVersionsRequest(client_software_name="client", client_software_version="1")


@pytest.mark.parametrize("version", versions(18))
async def test_api_versions_answers_the_whole_table_without_features(version: int) -> None:
    answer = await AskedEndpoint().answer(_VERSIONS_REQUEST, ApiVersionsResponse, version=version)
    assert answer.error_code is ErrorCode.none
    told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert told == {key: (api.min_version, api.max_version) for key, api in API_TABLE.items()}
    assert answer.supported_features == ()
    assert answer.finalized_features == ()
    assert answer.finalized_features_epoch == -1
    assert not answer.zk_migration_ready


async def test_api_versions_has_what_clients_choose_their_ways_by() -> None:
    answer = await AskedEndpoint().answer(_VERSIONS_REQUEST, ApiVersionsResponse)
    offered = {int(each.api_key): range(each.min_version, each.max_version + 1) for each in answer.api_keys}
    assert {3, 7} <= set(offered[0])  # librdkafka: message format 2, zstd
    assert 11 in offered[2]  # ListOffsets of places up to -6
    assert 68 not in offered  # ConsumerGroupHeartbeat
    assert 71 not in offered  # GetTelemetrySubscriptions


def _cluster_request(*, endpoint_type: int = 1, operations: bool = False) -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=operations,
        endpoint_type=i8(endpoint_type),
        include_fenced_brokers=True,
    )


@pytest.mark.parametrize("version", versions(60))
async def test_cluster_is_the_live_endpoints(version: int) -> None:
    answer = await AskedEndpoint().answer(_cluster_request(), DescribeClusterResponse, version=version)
    assert answer.error_code is ErrorCode.none
    assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, FIRST_NODE.node_id)
    assert [(each.broker_id, each.host, each.port, each.rack, each.is_fenced) for each in answer.brokers] == [
        (each.node_id, each.host, each.port, each.rack, False) for each in (FIRST_NODE, SECOND_NODE)
    ]
    assert answer.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", versions(60))
async def test_operations_on_the_cluster_are_reads(version: int) -> None:
    answer = await AskedEndpoint().answer(_cluster_request(operations=True), DescribeClusterResponse, version=version)
    assert answer.cluster_authorized_operations == 1 << 8 | 1 << 10


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)],
)
async def test_controllers_are_not_here(endpoint_type: int, code: ErrorCode) -> None:
    answer = await AskedEndpoint().answer(_cluster_request(endpoint_type=endpoint_type), DescribeClusterResponse)
    assert answer.error_code is code
    assert answer.error_message
    assert answer.brokers == ()


async def test_no_partition_is_ever_reassigned() -> None:
    request = ListPartitionReassignmentsRequest(topics=None)
    answer = await AskedEndpoint().answer(request, ListPartitionReassignmentsResponse)
    assert (answer.error_code, answer.topics) == (ErrorCode.none, ())
