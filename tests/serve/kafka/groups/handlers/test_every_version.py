"""Every request about groups is answered in every version, whatever is asked, and every version means the same."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload

from tests.serve.kafka.answers.asking import versions
from tests.serve.kafka.groups.asked_groups import AskedGroups, FakeConsumer, become_stable, settle
from tests.serve.kafka.kio_messages import messages, sample
from tierd.metadata import MemoryKeyValueStore

_KEYS = (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47)
_REQUESTS = [load_request_schema(key, version) for key in _KEYS for version in versions(key)]
_JOIN, _SYNC, _HEARTBEAT, _LEAVE = 11, 14, 12, 13


def _name(request: type[RequestPayload]) -> str:
    return f"{request.__name__} v{request.__version__}"


async def _ask(endpoint: AskedGroups, request: RequestPayload) -> None:
    asking = asyncio.create_task(endpoint.ask(request))
    await settle()
    if not asking.done():  # a join that waits for others
        await endpoint.pass_time(3.0)
    await asking


@pytest.mark.parametrize("request_type", _REQUESTS, ids=_name)
@pytest.mark.parametrize("items", [0, 2])
async def test_request_of_any_version_is_answered_in_its_version(
    request_type: type[RequestPayload], items: int
) -> None:
    async with AskedGroups(MemoryKeyValueStore()).running() as endpoint:
        await _ask(endpoint, sample(request_type, items=items))


@pytest.mark.parametrize("api_key", _KEYS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_arbitrary_request_is_answered(api_key: int, data: st.DataObject) -> None:
    request_type = load_request_schema(api_key, data.draw(st.sampled_from(versions(api_key))))
    request = data.draw(messages(request_type))
    if api_key == _JOIN:
        times = data.draw(st.sampled_from([timedelta(seconds=10), timedelta(0)]))
        request = replace(request, session_timeout=times, group_id=data.draw(st.sampled_from(["", "readers"])))
    async with AskedGroups(MemoryKeyValueStore()).running() as endpoint:
        await _ask(endpoint, request)


@pytest.mark.parametrize("version", versions(_JOIN))
async def test_consumer_of_any_version_joins_reads_and_leaves(version: int) -> None:
    """The versions of the other requests are those of the same age, and the newest for the newest join."""
    async with AskedGroups(MemoryKeyValueStore()).running() as endpoint:
        alice = FakeConsumer(endpoint, instance_id="one" if version >= 5 else None)
        joining = asyncio.create_task(alice.join(version=version))
        await endpoint.pass_time(3.0)
        assert await joining is ErrorCode.none
        assert alice.joined is not None
        assert (alice.generation, alice.joined.protocol_name, alice.joined.leader) == (1, "range", alice.member_id)
        assert [each.metadata for each in alice.joined.members] == [b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"]
        assert await alice.sync({alice.member_id: b"all"}, version=_newest(_SYNC, version)) == b"all"
        assert await alice.beat(version=_newest(_HEARTBEAT, version)) is ErrorCode.none
        assert await alice.commit(10, version=max(2, min(9, version + 2))) is ErrorCode.none
        assert (await endpoint.committed())[0] == 10


def _newest(api_key: int, version: int) -> int:
    return min(version, max(versions(api_key))) if version < 9 else max(versions(api_key))


@pytest.mark.parametrize("version", range(3, 6))
async def test_member_that_leaves_in_a_list_is_answered_by_itself(version: int) -> None:
    async with AskedGroups(MemoryKeyValueStore()).running() as endpoint:
        alice, stranger = FakeConsumer(endpoint, instance_id="one"), FakeConsumer(endpoint)
        await become_stable(alice, endpoint=endpoint)
        stranger.member_id = "stranger"
        assert await stranger.leave(version=version) is ErrorCode.unknown_member_id
        assert await alice.leave(version=version) is ErrorCode.none
        assert endpoint.groups.statistics().groups[0].state == "Empty"


async def test_new_member_needs_an_id_from_version_4_on() -> None:
    async with AskedGroups(MemoryKeyValueStore()).running() as endpoint:
        for version in versions(_JOIN):
            consumer = FakeConsumer(endpoint, f"client-{version}", group=f"group-{version}")
            joining = asyncio.create_task(consumer.join(version=version, is_patient=False))
            await settle()
            assert joining.done() == (version >= 4)
            if version >= 4:
                assert await joining is ErrorCode.member_id_required
                assert consumer.member_id.startswith(f"client-{version}-")
            joining.cancel()
