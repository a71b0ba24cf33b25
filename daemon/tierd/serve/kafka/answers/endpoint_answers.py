"""Answers about the endpoints: ApiVersions, DescribeCluster and ListPartitionReassignments.

The endpoints have no features. Features of a cluster are levels such as ``transaction.version`` and ``group.version``,
by which clients switch on new ways of writing, or the new group protocol: the endpoints have neither. Nothing is known
here of the brokers' controllers.
"""

from functools import cache
from typing import Final

from kio.index import load_response_from_request
from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i16, i32
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.answers.client_access import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED
from tierd.serve.kafka.answers.shown_cluster import controller_of
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.served.served_cluster import ServedCluster
from tierd.serve.kafka.wire.api_table import API_TABLE

_BROKERS: Final = i8(1)
_CONTROLLERS: Final = i8(2)


def api_versions_answer(request: RequestPayload) -> ResponsePayload:
    """Return the requests that the endpoint takes, with their versions."""
    return _answer(load_response_from_request(request))


@cache
def _answer(response: type[ResponsePayload]) -> ResponsePayload:
    api_keys = tuple(
        ApiVersion(api_key=i16(each.api_key), min_version=i16(each.min_version), max_version=i16(each.max_version))
        for each in API_TABLE.values()
    )
    latest = ApiVersionsResponse(error_code=ErrorCode.none, api_keys=api_keys, throttle_time=NO_THROTTLE)
    return in_version(latest, response)


def reassignments_answer(request: RequestPayload) -> ResponsePayload:
    """Return that no partition moves, for the tools that ask before they describe topics."""
    none = ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, topics=()
    )
    return answer_in_version(request, none)


def cluster_answer(request: RequestPayload, cluster: ServedCluster) -> ResponsePayload:
    """Return the endpoints, to any client; a client that looks for controllers is told that there are none here."""
    wanted = in_version(request, DescribeClusterRequest)
    if wanted.endpoint_type != _BROKERS:
        return answer_in_version(request, _refused(wanted.endpoint_type))
    operations = CLUSTER_OPERATIONS if wanted.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
    answer = DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        endpoint_type=_BROKERS,
        cluster_id=cluster.cluster_id,
        controller_id=controller_of(cluster),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=BrokerId(each.node_id), host=each.host, port=i32(each.port), rack=each.rack, is_fenced=False
            )
            for each in cluster.nodes
        ),
        cluster_authorized_operations=i32(operations),
    )
    return answer_in_version(request, answer)


def _refused(endpoint_type: int) -> DescribeClusterResponse:
    is_known = endpoint_type == _CONTROLLERS
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.mismatched_endpoint_type if is_known else ErrorCode.unsupported_endpoint_type,
        error_message="tierd's read endpoint has no controllers"
        if is_known
        else f"endpoint type {endpoint_type} is not supported",
        endpoint_type=_BROKERS,
        cluster_id="",
        brokers=(),
    )
