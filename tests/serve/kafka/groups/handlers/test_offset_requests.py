"""Commits are for topics that are served, in all versions by name and by id, within their bounds."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v4.request import OffsetCommitRequest as OldCommitRequest
from kio.schema.offset_commit.v4.request import OffsetCommitRequestPartition as OldCommitPartition
from kio.schema.offset_commit.v4.request import OffsetCommitRequestTopic as OldCommitTopic
from kio.schema.offset_commit.v10 import request as commit_v10
from kio.schema.offset_commit.v10.response import OffsetCommitResponse
from kio.schema.offset_delete.v0 import request as delete_v0
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
from kio.schema.offset_fetch.v1.request import OffsetFetchRequest as FirstFetchRequest
from kio.schema.offset_fetch.v1.request import OffsetFetchRequestTopic as FirstFetchTopic
from kio.schema.offset_fetch.v1.response import OffsetFetchResponse as FirstFetchResponse
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as FetchOneRequest
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as FetchOneResponse
from kio.schema.offset_fetch.v9 import request as fetch_v9
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse as FetchByNameResponse
from kio.schema.offset_fetch.v10 import request as fetch_v10
from kio.schema.offset_fetch.v10.response import OffsetFetchResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64, i64Timedelta

from tests.serve.kafka.groups.asked_groups import GROUP, AskedGroups, FakeConsumer, GroupAnswerError, become_stable
from tierd.metadata import MemoryKeyValueStore
from tierd.serve.kafka.groups import CoordinationLimits
from tierd.serve.kafka.groups.handlers import offset_fetches

OK = ErrorCode.none
ORDERS, UNKNOWN_ID = UUID(int=1), UUID(int=99)
LIMITS = CoordinationLimits(max_offsets=3, max_metadata_bytes=6000, max_groups=3)


@pytest.fixture
async def endpoint() -> AsyncIterator[AskedGroups]:
    async with AskedGroups(MemoryKeyValueStore(), limits=LIMITS).running() as running:
        yield running


async def commit_by_id(endpoint: AskedGroups, topic_id: UUID, offset: int, *, leader_epoch: int = 5) -> ErrorCode:
    partition = commit_v10.OffsetCommitRequestPartition(
        partition_index=i32(1),
        committed_offset=i64(offset),
        committed_leader_epoch=i32(leader_epoch),
        committed_metadata="by id",
    )
    topic = commit_v10.OffsetCommitRequestTopic(topic_id=topic_id, partitions=(partition,))
    answer = await endpoint.answer(
        commit_v10.OffsetCommitRequest(group_id=GroupId(GROUP), member_id="", topics=(topic,)), OffsetCommitResponse
    )
    assert answer.topics[0].topic_id == topic_id
    return answer.topics[0].partitions[0].error_code


async def fetch_by_id(endpoint: AskedGroups, *topic_ids: UUID) -> OffsetFetchResponse:
    topics = tuple(fetch_v10.OffsetFetchRequestTopics(topic_id=each, partition_indexes=(i32(1),)) for each in topic_ids)
    group = fetch_v10.OffsetFetchRequestGroup(group_id=GroupId(GROUP), topics=topics or None)
    return await endpoint.answer(fetch_v10.OffsetFetchRequest(groups=(group,)), OffsetFetchResponse)


async def fetch_all(endpoint: AskedGroups) -> dict[str, dict[int, tuple[int, str]]]:
    request = FetchOneRequest(group_id=GroupId(GROUP), topics=None, require_stable=True)
    answer = await endpoint.answer(request, FetchOneResponse)
    return {
        topic.name: {each.partition_index: (each.committed_offset, each.metadata or "") for each in topic.partitions}
        for topic in answer.topics
    }


async def delete_offsets(endpoint: AskedGroups, topic: str = "orders", partition: int = 0) -> ErrorCode:
    wanted = delete_v0.OffsetDeleteRequestTopic(
        name=TopicName(topic),
        partitions=(delete_v0.OffsetDeleteRequestPartition(partition_index=i32(partition)),),
    )
    request = delete_v0.OffsetDeleteRequest(group_id=GroupId(GROUP), topics=(wanted,))
    answer = await endpoint.answer(request, OffsetDeleteResponse)
    return answer.error_code or answer.topics[0].partitions[0].error_code


async def test_commit_by_id_and_by_name_are_the_same_position(endpoint: AskedGroups) -> None:
    assert await commit_by_id(endpoint, ORDERS, 10) is OK
    assert await endpoint.committed(1) == {1: 10}
    assert await FakeConsumer(endpoint).commit(20, partition=1, metadata="by name") is OK
    [topic] = (await fetch_by_id(endpoint, ORDERS)).groups[0].topics
    assert (topic.topic_id, topic.partitions[0].committed_offset) == (ORDERS, 20)
    assert (topic.partitions[0].metadata, topic.partitions[0].committed_leader_epoch) == ("by name", -1)
    assert await commit_by_id(endpoint, ORDERS, 30) is OK
    assert (await fetch_by_id(endpoint)).groups[0].topics[0].partitions[0].committed_leader_epoch == 5


async def test_unknown_topics_and_partitions_are_refused_each_by_itself(endpoint: AskedGroups) -> None:
    simple = FakeConsumer(endpoint)
    assert await simple.commit(1, topic="unknown") is ErrorCode.unknown_topic_or_partition
    assert await simple.commit(1, partition=4) is ErrorCode.unknown_topic_or_partition
    assert await commit_by_id(endpoint, UNKNOWN_ID, 1) is ErrorCode.unknown_topic_id
    [topic] = (await fetch_by_id(endpoint, UNKNOWN_ID)).groups[0].topics
    assert topic.partitions[0].error_code is ErrorCode.unknown_topic_id
    assert await endpoint.committed(0, topic="unknown") == {0: -1}


async def test_positions_of_a_deleted_topic_are_not_those_of_a_new_one_of_its_name(endpoint: AskedGroups) -> None:
    assert await FakeConsumer(endpoint).commit(10) is OK
    endpoint.served.remove_topic("orders")
    assert (await endpoint.committed(0))[0] == 10, "a daemon that does not know the topic yet must not say: none"
    assert await fetch_all(endpoint) == {"orders": {0: (10, "")}}
    endpoint.served.add_topic("orders", topic_id=UUID(int=0xD0 << 120))  # its text comes before that of the former one
    assert (await endpoint.committed(0))[0] == -1
    assert await fetch_all(endpoint) == {}
    await endpoint.pass_time(1)
    assert await FakeConsumer(endpoint).commit(20) is OK
    endpoint.served.remove_topic("orders")
    assert (await endpoint.committed(0))[0] == 20
    assert await fetch_all(endpoint) == {"orders": {0: (20, "")}}


async def test_impossible_positions_are_refused(endpoint: AskedGroups) -> None:
    simple = FakeConsumer(endpoint)
    assert await simple.commit(-2) is ErrorCode.invalid_request
    assert await simple.commit(-1) is OK
    assert (await endpoint.committed())[0] == -1
    assert await commit_by_id(endpoint, ORDERS, 1, leader_epoch=-7) is OK
    assert (await fetch_by_id(endpoint, ORDERS)).groups[0].topics[0].partitions[0].committed_leader_epoch == -1


async def test_metadata_has_bounds_for_one_commit_and_for_a_group(endpoint: AskedGroups) -> None:
    simple = FakeConsumer(endpoint)
    assert await simple.commit(1, metadata=None) is OK
    assert await simple.commit(2, metadata="ä" * 2000) is OK
    assert await simple.commit(3, metadata="x" * 4097) is ErrorCode.offset_metadata_too_large
    assert await simple.commit(4, partition=1, metadata="x" * 2001) is ErrorCode.offset_metadata_too_large
    assert await simple.commit(5, metadata="x" * 4096) is OK
    assert await fetch_all(endpoint) == {"orders": {0: (5, "x" * 4096)}}


async def test_group_commits_no_more_partitions_than_its_bound(endpoint: AskedGroups) -> None:
    simple = FakeConsumer(endpoint)
    for partition in range(3):
        assert await simple.commit(1, partition=partition) is OK
    assert await simple.commit(1, partition=3) is ErrorCode.policy_violation
    assert await simple.commit(2, partition=2) is OK


async def test_no_more_groups_are_made_than_the_bound(endpoint: AskedGroups) -> None:
    for number in range(3):
        assert await FakeConsumer(endpoint, group=f"group-{number}").commit(1) is OK
    assert await FakeConsumer(endpoint, group="group-3").commit(1) is ErrorCode.policy_violation
    assert await FakeConsumer(endpoint, group="group-3").join() is ErrorCode.policy_violation
    assert await FakeConsumer(endpoint, group="group-0").commit(2) is OK
    assert await FakeConsumer(endpoint, group="g" * 5000).commit(2) is ErrorCode.invalid_group_id


async def test_commits_need_their_topic_and_their_group(endpoint: AskedGroups) -> None:
    simple = FakeConsumer(endpoint)
    assert await simple.commit(1) is OK
    endpoint.authorizer.hidden.add("orders")
    assert await simple.commit(2) is ErrorCode.topic_authorization_failed
    assert await simple.commit(2, topic="unknown") is ErrorCode.unknown_topic_or_partition
    assert await commit_by_id(endpoint, ORDERS, 2) is ErrorCode.topic_authorization_failed
    [topic] = (await fetch_by_id(endpoint, ORDERS)).groups[0].topics
    assert topic.partitions[0].error_code is ErrorCode.topic_authorization_failed
    assert await fetch_all(endpoint) == {}
    endpoint.authorizer.hidden.clear()
    endpoint.authorizer.unreadable.add("orders")
    assert await simple.commit(2) is ErrorCode.topic_authorization_failed
    assert (await endpoint.committed())[0] == 1
    endpoint.authorizer.unreadable.clear()
    endpoint.authorizer.forbidden_groups.add(GROUP)
    assert await simple.commit(2) is ErrorCode.group_authorization_failed
    with pytest.raises(GroupAnswerError, match="group_authorization_failed"):
        await endpoint.committed()


async def test_commit_into_a_group_that_does_not_exist_says_so_by_version(endpoint: AskedGroups) -> None:
    member = FakeConsumer(endpoint)
    member.member_id, member.generation = "member", 3
    assert await member.commit(1, version=9) is ErrorCode.group_id_not_found
    assert await member.commit(1, version=8) is ErrorCode.illegal_generation


async def test_error_of_the_group_has_a_place_in_every_version_of_a_fetch(endpoint: AskedGroups) -> None:
    endpoint.authorizer.forbidden_groups.add(GROUP)
    topic = FirstFetchTopic(name=TopicName("orders"), partition_indexes=(i32(0), i32(1)))
    first = await endpoint.answer(FirstFetchRequest(group_id=GroupId(GROUP), topics=(topic,)), FirstFetchResponse)
    errors = [each.error_code for each in first.topics[0].partitions]
    assert errors == [ErrorCode.group_authorization_failed] * 2
    request = FetchOneRequest(group_id=GroupId(GROUP), topics=None, require_stable=False)
    for version in range(2, 8):
        one = await endpoint.answer(request, FetchOneResponse, version=version)
        assert (one.error_code, one.topics) == (ErrorCode.group_authorization_failed, ())


async def test_several_groups_are_fetched_at_once(endpoint: AskedGroups) -> None:
    assert await FakeConsumer(endpoint).commit(10) is OK
    endpoint.authorizer.forbidden_groups.add("forbidden")
    topic = fetch_v9.OffsetFetchRequestTopics(name=TopicName("orders"), partition_indexes=(i32(0),))
    groups = tuple(
        fetch_v9.OffsetFetchRequestGroup(group_id=GroupId(each), topics=(topic,))
        for each in (GROUP, "forbidden", "unknown")
    )
    answer = await endpoint.answer(fetch_v9.OffsetFetchRequest(groups=groups), FetchByNameResponse, version=8)
    assert [each.error_code for each in answer.groups] == [OK, ErrorCode.group_authorization_failed, OK]
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 10
    assert answer.groups[2].topics[0].partitions[0].committed_offset == -1


async def test_retention_that_an_old_client_wishes_is_kept_with_the_commit(endpoint: AskedGroups) -> None:
    def request(retention_s: float) -> OldCommitRequest:
        partition = OldCommitPartition(partition_index=i32(0), committed_offset=i64(1), committed_metadata=None)
        return OldCommitRequest(
            group_id=GroupId(GROUP),
            member_id="",
            retention_time=i64Timedelta.parse(timedelta(seconds=retention_s)),
            topics=(OldCommitTopic(name=TopicName("orders"), partitions=(partition,)),),
        )

    await endpoint.ask(request(-0.001))
    [group] = endpoint.groups.statistics().groups
    assert [each.expire_ms for each in group.offsets.values()] == [None]
    await endpoint.ask(request(60))
    [group] = endpoint.groups.statistics().groups
    assert [each.expire_ms for each in group.offsets.values()] == [endpoint.clock.now_ms() + 60_000]


async def test_offsets_are_deleted_where_no_member_reads_them(endpoint: AskedGroups) -> None:
    endpoint.served.add_topic("former")
    assert await delete_offsets(endpoint) is ErrorCode.group_id_not_found
    alice = FakeConsumer(endpoint)
    await become_stable(alice, endpoint=endpoint)
    assert (await alice.commit(1), await alice.commit(1, topic="former")) == (OK, OK)
    assert await delete_offsets(endpoint) is ErrorCode.group_subscribed_to_topic
    assert await delete_offsets(endpoint, "former") is OK
    assert await delete_offsets(endpoint, "former", 9) is ErrorCode.unknown_topic_or_partition
    assert await fetch_all(endpoint) == {"orders": {0: (1, "")}}
    assert await alice.leave() is OK
    assert await delete_offsets(endpoint) is OK
    assert await delete_offsets(endpoint, partition=3) is OK
    assert await fetch_all(endpoint) == {}
    endpoint.authorizer.unreadable.add("orders")
    assert await delete_offsets(endpoint) is ErrorCode.topic_authorization_failed


async def fetch_groups(endpoint: AskedGroups, *names: str) -> list[tuple[str, ErrorCode, int]]:
    groups = tuple(fetch_v9.OffsetFetchRequestGroup(group_id=GroupId(name), topics=None) for name in names)
    answer = await endpoint.answer(fetch_v9.OffsetFetchRequest(groups=groups), FetchByNameResponse)
    return [(each.group_id, each.error_code, len(each.topics)) for each in answer.groups]


async def test_group_that_is_named_many_times_is_answered_once(endpoint: AskedGroups) -> None:
    assert await FakeConsumer(endpoint).commit(1) is OK
    assert await fetch_groups(endpoint, *[GROUP] * 1000) == [(GROUP, OK, 1)]


async def test_client_asks_again_for_groups_that_make_an_answer_too_large(
    endpoint: AskedGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_fetches, "MOST_POSITIONS", 2)
    for group in ("a", "b", "c"):
        for partition in (0, 1):
            assert await FakeConsumer(endpoint, group=group).commit(1, partition=partition) is OK
    later = ErrorCode.coordinator_load_in_progress
    assert await fetch_groups(endpoint, "a", "b", "c") == [("a", OK, 1), ("b", later, 0), ("c", later, 0)]
    assert await fetch_groups(endpoint, "b", "c") == [("b", OK, 1), ("c", later, 0)]


async def test_commits_of_all_groups_have_a_bound_in_the_store_as_well() -> None:
    limits = CoordinationLimits(max_stored_offset_bytes=20_000, upkeep_interval_s=60.0)
    async with AskedGroups(MemoryKeyValueStore(), limits=limits).running() as endpoint:
        assert await FakeConsumer(endpoint, group="large").commit(1, metadata="x" * 4096) is OK
        await endpoint.pass_time(200)  # the group is not in memory any more
        assert await FakeConsumer(endpoint, group="other").commit(1, metadata="x" * 4096) is ErrorCode.policy_violation
        assert await FakeConsumer(endpoint, group="other").commit(1) is OK
        assert await FakeConsumer(endpoint, group="other").commit(1, metadata="x" * 4096) is ErrorCode.policy_violation
        assert await FakeConsumer(endpoint, group="large").commit(2, metadata="") is OK
        await endpoint.pass_time(200)
        assert await FakeConsumer(endpoint, group="other").commit(1, metadata="x" * 4096, partition=1) is OK
