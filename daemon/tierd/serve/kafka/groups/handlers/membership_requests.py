"""Handlers of JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from datetime import timedelta
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.leave_group.v2.request import LeaveGroupRequest as LeaveAloneRequest
from kio.schema.leave_group.v2.response import LeaveGroupResponse as LeaveAloneResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.groups.coordination.endpoint_groups import GroupRefusedError
from tierd.serve.kafka.groups.handlers.group_door import GroupDoor, unless_closing
from tierd.serve.kafka.groups.protocol.group_effects import JoinAnswer, LeaveAnswer, PlainAnswer, SyncAnswer
from tierd.serve.kafka.groups.protocol.group_events import (
    HeartbeatReceived,
    JoinProtocol,
    JoinRequested,
    LeaveRequested,
    LeavingMember,
    SyncRequested,
)
from tierd.serve.kafka.loop_turns import PIECE_ITEMS
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.request_context import RequestContext

_FIRST_JOIN_WITH_MEMBER_ID: Final = 4  # KIP-394
_FIRST_JOIN_WITHOUT_PROTOCOL: Final = 7
_FIRST_JOIN_WITH_SKIP: Final = 9  # KIP-814
_FIRST_SYNC_WITH_PROTOCOL: Final = 5
_FIRST_LEAVE_OF_MANY: Final = 3  # KIP-345
_MAX_INSTANCE_CHARS: Final = 249  # as the Java clients allow
_MAX_PROTOCOLS: Final = 100
_MAX_TEXT_CHARS: Final = 255
_CLIENT_ID_CHARS: Final = 200  # of a client id in the ids of members: the whole has to fit into a text


class MembershipRequests:
    """Requests of members, and of clients that become members."""

    def __init__(self, door: GroupDoor) -> None:
        self._door = door

    async def join(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Make the client a member; the answer waits for the other members."""
        wanted = in_version(request, JoinGroupRequest)
        if refusal := _bound_error(wanted):
            return answer_in_version(request, _join_response(JoinAnswer(refusal, wanted.member_id), context.version))
        protocols = tuple(
            JoinProtocol(name, data) for name, data in {each.name: each.metadata for each in wanted.protocols}.items()
        )
        new_member_id = (
            f"{(wanted.group_instance_id or context.client_id)[:_CLIENT_ID_CHARS]}-{self._door.groups.new_id()}"
        )

        def event(waiter: int) -> JoinRequested:
            session_timeout_s = _seconds(wanted.session_timeout)
            return JoinRequested(
                waiter=waiter,
                member_id=wanted.member_id,
                new_member_id=new_member_id,
                instance_id=wanted.group_instance_id,
                client_id=context.client_id[:_MAX_TEXT_CHARS],
                client_host=f"/{context.peer}",
                session_timeout_s=session_timeout_s,
                rebalance_timeout_s=_seconds(wanted.rebalance_timeout) if context.version else session_timeout_s,
                protocol_type=wanted.protocol_type,
                protocols=protocols,
                needs_member_id=context.version >= _FIRST_JOIN_WITH_MEMBER_ID,
                may_skip_assignment=context.version >= _FIRST_JOIN_WITH_SKIP,
            )

        try:
            hosted = await self._door.find(context, wanted.group_id, may_create=not wanted.member_id)
            added_bytes = hosted.core.growth_bytes(wanted.member_id, protocols)
            self._door.groups.require_memory(joining_bytes=added_bytes)
            answer = await unless_closing(hosted.ask(event, JoinAnswer), context)
        except GroupRefusedError as error:
            answer = JoinAnswer(_for_members(error), wanted.member_id)
        return answer_in_version(request, _join_response(answer, context.version))

    async def sync(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Return the assignment of a member; the answer waits for its leader."""
        wanted = in_version(request, SyncGroupRequest)

        def event(waiter: int) -> SyncRequested:
            return SyncRequested(
                waiter=waiter,
                member_id=wanted.member_id,
                instance_id=wanted.group_instance_id,
                generation=wanted.generation_id,
                protocol_type=wanted.protocol_type,
                protocol_name=wanted.protocol_name,
                assignments={each.member_id: each.assignment for each in wanted.assignments},
            )

        answer = SyncAnswer(ErrorCode.inconsistent_group_protocol)
        is_named = None not in (wanted.protocol_type, wanted.protocol_name)
        if is_named or context.version < _FIRST_SYNC_WITH_PROTOCOL:
            try:
                hosted = await self._door.find(context, wanted.group_id)
                assigned_bytes = sum(len(each.assignment) for each in wanted.assignments)
                self._door.groups.require_memory(assigned_bytes=assigned_bytes)
                answer = await unless_closing(hosted.ask(event, SyncAnswer), context)
            except GroupRefusedError as error:
                answer = SyncAnswer(_for_members(error))
        response = SyncGroupResponse(
            throttle_time=NO_THROTTLE,
            error_code=answer.error,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )
        return answer_in_version(request, response)

    async def heartbeat(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Extend the session of a member."""
        wanted = in_version(request, HeartbeatRequest)

        def event(waiter: int) -> HeartbeatReceived:
            return HeartbeatReceived(
                waiter=waiter,
                member_id=wanted.member_id,
                instance_id=wanted.group_instance_id,
                generation=wanted.generation_id,
            )

        try:
            hosted = await self._door.find(context, wanted.group_id)
            error = (await hosted.ask(event, PlainAnswer)).error
        except GroupRefusedError as refused:
            error = _for_members(refused)
        return answer_in_version(request, HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=error))

    async def leave(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Remove members at once."""
        if context.version >= _FIRST_LEAVE_OF_MANY:
            many = in_version(request, LeaveGroupRequest)
            members = tuple(LeavingMember(each.member_id, each.group_instance_id) for each in many.members)
            return answer_in_version(request, _leave_response(await self._leave(context, many.group_id, members)))
        alone = in_version(request, LeaveAloneRequest)
        answer = await self._leave(context, alone.group_id, (LeavingMember(alone.member_id, None),))
        error = next((error for _, error in answer.members if error), answer.error)
        return answer_in_version(request, LeaveAloneResponse(throttle_time=NO_THROTTLE, error_code=error))

    async def _leave(self, context: RequestContext, group: str, members: tuple[LeavingMember, ...]) -> LeaveAnswer:
        try:
            hosted = await self._door.find(context, group)
            answered: list[tuple[LeavingMember, ErrorCode]] = []
            for start in range(0, max(1, len(members)), PIECE_ITEMS):
                some = members[start : start + PIECE_ITEMS]
                answer = await hosted.ask(partial(_leaving, members=some), LeaveAnswer)
                if answer.error:
                    return answer
                answered += answer.members
                await context.turns.take()
            return LeaveAnswer(ErrorCode.none, tuple(answered))
        except GroupRefusedError as refused:
            error = _for_members(refused)
        if error is ErrorCode.unknown_member_id:
            return LeaveAnswer(ErrorCode.none, tuple((each, error) for each in members))
        return LeaveAnswer(error)


def _bound_error(wanted: JoinGroupRequest) -> ErrorCode:
    """Return the error of a join that would only fill memory and store: no client sends such texts (KIP-345)."""
    if len(wanted.group_instance_id or "") > _MAX_INSTANCE_CHARS:
        return ErrorCode.invalid_request
    texts = [wanted.protocol_type, *(each.name for each in wanted.protocols[:_MAX_PROTOCOLS])]
    is_over = len(wanted.protocols) > _MAX_PROTOCOLS or any(len(each) > _MAX_TEXT_CHARS for each in texts)
    return ErrorCode.inconsistent_group_protocol if is_over else ErrorCode.none


def _leaving(waiter: int, *, members: tuple[LeavingMember, ...]) -> LeaveRequested:
    return LeaveRequested(waiter, members)


def _for_members(refused: GroupRefusedError) -> ErrorCode:
    """Return the error for a member: of a group that does not exist, no client is a member."""
    is_absent = refused.error is ErrorCode.group_id_not_found
    return ErrorCode.unknown_member_id if is_absent else refused.error


def _join_response(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    no_protocol = None if version >= _FIRST_JOIN_WITHOUT_PROTOCOL else ""
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=answer.error,
        generation_id=i32(answer.generation),
        protocol_type=answer.protocol_type,
        protocol_name=no_protocol if answer.protocol_name is None else answer.protocol_name,
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in answer.members
        ),
    )


def _leave_response(answer: LeaveAnswer) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=answer.error,
        members=tuple(
            MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.instance_id, error_code=error)
            for leaving, error in answer.members
        ),
    )


def _seconds(duration: timedelta) -> float:
    return max(0.0, duration.total_seconds())
