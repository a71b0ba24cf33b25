"""Refusals of everything that writes: the answers of a cluster whose access rules allow no client to write.

Clients show these errors to their applications at once. A producer with idempotence asks for a producer id first, and
ends with CLUSTER_AUTHORIZATION_FAILED; one without is told TOPIC_AUTHORIZATION_FAILED for its first record.

A refusal mirrors its request: each item of the request has one in the answer, with the same names and numbers, so that
one description serves every version.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, Final, cast

from kio.index import load_response_from_request
from kio.schema.errors import ErrorCode
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

from tierd.serve.kafka.message_versions import default_of, is_array, item_type

READ_ONLY: Final = "tierd's read endpoint is read-only"
_NO_ACLS: Final = "tierd's read endpoint keeps no ACLs: access is configured in kafka.access"
_NO_ITEMS: Final[Mapping[str, Sequence[str]]] = {}
_RESOURCE_CODES: Final = {
    2: ErrorCode.topic_authorization_failed,
    32: ErrorCode.group_authorization_failed,
}  # Kafka: ConfigResource.Type

_Code = Callable[[RequestPayload, object], ErrorCode]


def _always(code: ErrorCode) -> _Code:
    return lambda _request, _item: code


def _of_producer(request: RequestPayload, _item: object) -> ErrorCode:
    """Return the code for a request that may belong to a transaction."""
    is_transactional = getattr(request, "transactional_id", None) is not None
    if is_transactional:
        return ErrorCode.transactional_id_authorization_failed
    is_produce = request.__api_key__ == 0
    return ErrorCode.topic_authorization_failed if is_produce else ErrorCode.cluster_authorization_failed


def _of_transactions(request: RequestPayload, _item: object) -> ErrorCode:
    """Return the code for partitions of a transaction; from version 4 on, only brokers send this request."""
    is_client = request.__version__ < 4
    return ErrorCode.transactional_id_authorization_failed if is_client else ErrorCode.cluster_authorization_failed


def _of_resource(_request: RequestPayload, item: object) -> ErrorCode:
    kind = getattr(item, "resource_type", None)
    return _RESOURCE_CODES.get(cast("int", kind), ErrorCode.cluster_authorization_failed)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Refusal of one kind of request.

    Attributes:
        code: of the request, or of one of its items.
        items: for each array of the answer the array of the request with its items, under all its names.
        values: of fields that say nothing in a refusal, where the default is not right.
        message: beside each code, in the versions that have a text there.
    """

    code: _Code
    items: Mapping[str, Sequence[str]] = field(default_factory=lambda: _NO_ITEMS)
    values: Mapping[str, object] = field(default_factory=dict)
    message: str = READ_ONLY


_NO_PRODUCER: Final = {"producer_id": -1, "producer_epoch": -1}
_TOPIC: Final = _always(ErrorCode.topic_authorization_failed)
_TRANSACTION: Final = _always(ErrorCode.transactional_id_authorization_failed)
_CLUSTER: Final = _always(ErrorCode.cluster_authorization_failed)
_BY_TOPIC: Final = {"topics": ("topics",), "partitions": ("partitions",)}

_REFUSALS: Final[Mapping[int, _Refusal]] = {
    0: _Refusal(  # Produce
        _of_producer,
        {"responses": ("topic_data",), "partition_responses": ("partition_data",)},
        {"base_offset": -1},
    ),
    19: _Refusal(_TOPIC, {"topics": ("topics",)}, {"num_partitions": -1, "replication_factor": -1}),  # CreateTopics
    20: _Refusal(_TOPIC, {"responses": ("topics", "topic_names")}),  # DeleteTopics
    21: _Refusal(_TOPIC, _BY_TOPIC, {"low_watermark": -1}),  # DeleteRecords
    22: _Refusal(_of_producer, values=_NO_PRODUCER),  # InitProducerId
    24: _Refusal(  # AddPartitionsToTxn
        _of_transactions,
        {"results_by_topic_v3_and_below": ("v3_and_below_topics",), "results_by_partition": ("partitions",)},
    ),
    25: _Refusal(_TRANSACTION),  # AddOffsetsToTxn
    26: _Refusal(_TRANSACTION, values=_NO_PRODUCER),  # EndTxn
    28: _Refusal(_TRANSACTION, _BY_TOPIC),  # TxnOffsetCommit
    29: _Refusal(_always(ErrorCode.security_disabled), message=_NO_ACLS),  # DescribeAcls
    30: _Refusal(_CLUSTER, {"results": ("creations",)}),  # CreateAcls
    31: _Refusal(_CLUSTER, {"filter_results": ("filters",)}),  # DeleteAcls
    33: _Refusal(_of_resource, {"responses": ("resources",)}),  # AlterConfigs
    37: _Refusal(_TOPIC, {"results": ("topics",)}),  # CreatePartitions
    43: _Refusal(  # ElectLeaders
        _CLUSTER, {"replica_election_results": ("topic_partitions",), "partition_result": ("partitions",)}
    ),
    44: _Refusal(_of_resource, {"responses": ("resources",)}),  # IncrementalAlterConfigs
    45: _Refusal(_CLUSTER, {"responses": ("topics",), "partitions": ("partitions",)}),  # AlterPartitionReassignments
}
REFUSED_APIS: Final = frozenset(_REFUSALS)
"""API keys of the requests that are refused."""


def refusal_of(request: RequestPayload) -> ResponsePayload:
    """Return the refusal of a request of ``REFUSED_APIS``, in its version."""
    refusal = _REFUSALS[request.__api_key__]
    return cast("ResponsePayload", _mirrored(load_response_from_request(request), request, request, refusal))


def _mirrored(target: type[Entity], item: object, request: RequestPayload, refusal: _Refusal) -> Entity:
    code = refusal.code(request, item)
    values = dict[str, object]()
    for at, each in enumerate(fields(target)):
        if each.name in refusal.values:
            values[each.name] = refusal.values[each.name]
        elif each.metadata.get("kafka_type") == "error_code":
            values[each.name] = code
        elif each.name == "error_message":
            values[each.name] = refusal.message
        elif is_array(each) and is_dataclass(item_type(each)):
            values[each.name] = _mirrored_items(each, item, request, refusal)
        elif isinstance(item, int | str):  # an array of names or numbers
            values[each.name] = item if at == 0 else default_of(each)
        else:
            values[each.name] = getattr(item, each.name, default_of(each))
    return target(**values)


def _mirrored_items(
    array: Field[Any], item: object, request: RequestPayload, refusal: _Refusal
) -> tuple[Entity, ...] | None:
    names = refusal.items.get(array.name, ())
    items = next((found for name in names if (found := getattr(item, name, None)) is not None), None)
    if items is None:
        return cast("tuple[Entity, ...] | None", default_of(array))
    target = cast("type[Entity]", item_type(array))
    return tuple(_mirrored(target, each, request, refusal) for each in items)
