"""Handlers of ListGroups, DescribeGroups and DeleteGroups."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.errors import MetadataError
from tierd.serve.kafka.client_errors import AskedFor, error_code_for
from tierd.serve.kafka.groups.coordination.endpoint_groups import GroupRefusedError
from tierd.serve.kafka.groups.coordination.hosted_group import HostedGroup
from tierd.serve.kafka.groups.handlers.group_door import GroupDoor
from tierd.serve.kafka.groups.protocol.group_effects import PlainAnswer
from tierd.serve.kafka.groups.protocol.group_events import DeleteRequested
from tierd.serve.kafka.groups.protocol.group_state import ClassicGroupState
from tierd.serve.kafka.groups.storage.group_rows import GroupRow
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.request_context import RequestContext

_GROUP_TYPE: Final = "classic"
_FIRST_DESCRIPTION_WITH_NOT_FOUND: Final = 6  # KIP-1043
_OPERATIONS: Final = (1 << 3) | (1 << 6) | (1 << 8)  # read, delete and describe, as bits (Kafka: AclOperation)


class GroupListings:
    """Answers about whole groups. Groups that no client uses are known from their rows in the store."""

    def __init__(self, door: GroupDoor) -> None:
        self._door = door

    async def list_groups(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Return the groups that this endpoint coordinates, and that the client may use."""
        wanted = in_version(request, ListGroupsRequest)
        groups: tuple[ListedGroup, ...] = ()
        error = ErrorCode.none
        if self._door.authorizer.is_quarantined(context):
            error = ErrorCode.coordinator_not_available
        elif not wanted.types_filter or _GROUP_TYPE in _lowered(wanted.types_filter):
            try:
                groups = await self._listed(context, _lowered(wanted.states_filter))
            except MetadataError as failure:
                error = error_code_for(failure, AskedFor.GROUP, version=context.version)
        answer = ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=error, groups=groups)
        return answer_in_version(request, answer)

    async def describe(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Return state and members of groups."""
        wanted = in_version(request, DescribeGroupsRequest)
        names = list(dict.fromkeys(wanted.groups))
        rows = await self._rows(context, names)
        described = [self._described(context, each, rows) async for each in context.turns.pieces(names)]

        def answer() -> ResponsePayload:
            groups = map(_with_operations, described) if wanted.include_authorized_operations else described
            return answer_in_version(request, DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups)))

        return await context.turns.aside(len(described), answer)

    async def delete(self, request: RequestPayload, context: RequestContext) -> ResponsePayload:
        """Remove groups without members, with all their commits."""
        names = list(dict.fromkeys(in_version(request, DeleteGroupsRequest).groups_names))
        rows = await self._rows(context, names)
        results = tuple(
            [
                DeletableGroupResult(group_id=each, error_code=await self._delete(context, each, rows))
                async for each in context.turns.pieces(names)
            ]
        )
        return answer_in_version(request, DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=results))

    async def _listed(self, context: RequestContext, states: frozenset[str]) -> tuple[ListedGroup, ...]:
        groups, found = self._door.groups, dict[str, tuple[str, str]]()
        for row in await groups.store.all_rows():
            if groups.placement.is_here(row.group):
                found[row.group] = (row.protocol_type or "", ClassicGroupState.EMPTY.value)
        for name, hosted in groups.hosted.items():
            found[name] = (hosted.core.protocol_type or "", hosted.core.state.value)
        return tuple(
            ListedGroup(group_id=GroupId(name), protocol_type=kind, group_state=state, group_type=_GROUP_TYPE)
            for name, (kind, state) in sorted(found.items())
            if (not states or state.lower() in states) and self._door.authorizer.may_use_group(context.principal, name)
        )

    async def _rows(self, context: RequestContext, names: Iterable[str]) -> Mapping[str, GroupRow] | ErrorCode:
        """Return the rows of those groups that the client may use and that are not in memory, or an error."""
        groups = self._door.groups
        allowed = [
            each
            async for each in context.turns.pieces(names)
            if each not in groups.hosted and not self._refusal(context, each)
        ]
        try:
            return await groups.store.rows(allowed) if allowed else {}
        except MetadataError as error:
            return error_code_for(error, AskedFor.GROUP, version=context.version)

    def _refusal(self, context: RequestContext, group: str) -> ErrorCode:
        if error := self._door.refusal(context, group, may_be_nameless=True):
            return error
        try:
            self._door.groups.require_place(group)
        except GroupRefusedError as refused:
            return refused.error
        return ErrorCode.none

    def _described(
        self, context: RequestContext, group: str, rows: Mapping[str, GroupRow] | ErrorCode
    ) -> DescribedGroup:
        if error := self._refusal(context, group):
            return _description(group, error=error)
        if (hosted := self._door.groups.hosted.get(group)) is not None:
            return _hosted_description(hosted)
        if isinstance(rows, ErrorCode):
            return _description(group, error=rows)
        if (row := rows.get(group)) is not None:
            return _description(group, state=ClassicGroupState.EMPTY, protocol_type=row.protocol_type or "")
        if context.version < _FIRST_DESCRIPTION_WITH_NOT_FOUND:
            return _description(group, state=ClassicGroupState.DEAD)
        return replace(
            _description(group, state=ClassicGroupState.DEAD, error=ErrorCode.group_id_not_found),
            error_message=f"Group {group} not found.",
        )

    async def _delete(self, context: RequestContext, group: str, rows: Mapping[str, GroupRow] | ErrorCode) -> ErrorCode:
        if error := self._refusal(context, group):
            return error
        if group not in self._door.groups.hosted:
            if isinstance(rows, ErrorCode):
                return rows
            if group not in rows:
                return ErrorCode.group_id_not_found
        try:
            hosted = await self._door.groups.find(group)
        except GroupRefusedError as refused:
            return refused.error
        verdict = await hosted.ask(DeleteRequested, PlainAnswer)
        if verdict.error:
            return verdict.error
        error = await hosted.writer.remove_group(lambda: hosted.core.state is ClassicGroupState.EMPTY)
        self._door.groups.known_groups -= not error
        return error


def _with_operations(group: DescribedGroup) -> DescribedGroup:
    return group if group.error_code else replace(group, authorized_operations=i32(_OPERATIONS))


def _lowered(names: Iterable[str]) -> frozenset[str]:
    return frozenset(each.strip().lower() for each in names)


def _description(
    group: str,
    *,
    state: ClassicGroupState | None = None,
    protocol_type: str = "",
    error: ErrorCode = ErrorCode.none,
) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        group_id=GroupId(group),
        group_state="" if state is None else state.value,
        protocol_type=protocol_type,
        protocol_data="",
        members=(),
    )


def _hosted_description(hosted: HostedGroup) -> DescribedGroup:
    core = hosted.core
    is_stable = core.state is ClassicGroupState.STABLE
    members = tuple(
        DescribedGroupMember(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            member_metadata=each.metadata(core.protocol_name) if is_stable else b"",
            member_assignment=each.assignment if is_stable else b"",
        )
        for each in core.members
    )
    described = _description(hosted.name, state=core.state, protocol_type=core.protocol_type or "")
    return replace(described, protocol_data=(core.protocol_name or "") if is_stable else "", members=members)
