"""Answer to DescribeCluster: the live endpoints. Nothing is known here of the brokers' controllers."""

from typing import Final

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.answers.client_access import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED
from tierd.serve.kafka.answers.shown_cluster import controller_of
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.served.served_cluster import ServedCluster

_BROKERS: Final = i8(1)
_CONTROLLERS: Final = i8(2)


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
