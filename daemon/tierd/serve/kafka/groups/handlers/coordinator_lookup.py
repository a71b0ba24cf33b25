"""Handler of FindCoordinator: the endpoint that coordinates a group."""

from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindOneRequest
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as FindOneResponse
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.groups.handlers.group_door import GroupDoor
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.request_context import RequestContext

_GROUP: Final = 0
_TRANSACTION: Final = 1
_FIRST_WITH_MANY_KEYS: Final = 4

_MESSAGES: Final = {
    ErrorCode.transactional_id_authorization_failed: "tierd's read endpoint has no transactions",
    ErrorCode.invalid_request: "tierd's read endpoint coordinates consumer groups of the classic protocol only",
    ErrorCode.coordinator_not_available: "no coordinator is available now",
}


class CoordinatorLookup:
    """Answers about coordinators. Only groups have one: transactions, share groups and others are refused."""

    def __init__(self, door: GroupDoor) -> None:
        self._door = door

    async def find_coordinator(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Answer which endpoint coordinates each key."""
        if context.version >= _FIRST_WITH_MANY_KEYS:
            many = in_version(request, FindCoordinatorRequest)
            keys = context.turns.pieces(dict.fromkeys(many.coordinator_keys))
            found = tuple([self._coordinator(context, many.key_type, key) async for key in keys])
            return answer_in_version(request, FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=found))
        one = in_version(request, FindOneRequest)
        coordinator = self._coordinator(context, one.key_type, one.key)
        answer = FindOneResponse(
            throttle_time=NO_THROTTLE,
            error_code=coordinator.error_code,
            error_message=coordinator.error_message,
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )
        return answer_in_version(request, answer)

    def _coordinator(self, context: RequestContext, key_type: int, key: str) -> Coordinator:
        error, node = self._error(context, key_type, key), None
        if not error:
            node = self._door.groups.placement.coordinator(key, context.listener)
            error = ErrorCode.none if node is not None else ErrorCode.coordinator_not_available
        return Coordinator(
            key=key,
            node_id=BrokerId(-1 if node is None else node.node_id),
            host="" if node is None else node.host,
            port=i32(-1 if node is None else node.port),
            error_code=error,
            error_message=_MESSAGES.get(error),
        )

    def _error(self, context: RequestContext, key_type: int, key: str) -> ErrorCode:
        if key_type == _GROUP:
            return self._door.refusal(context, key, may_be_nameless=True)
        if key_type == _TRANSACTION:
            return ErrorCode.transactional_id_authorization_failed
        return ErrorCode.invalid_request
