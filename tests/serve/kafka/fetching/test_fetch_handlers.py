"""Answers to a Fetch: versions, errors, fencing, isolation, limits and sessions, over fake logs."""

import asyncio
import io
from pathlib import Path
from uuid import UUID

import pytest
from kio.serial import entity_reader, entity_writer
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.serve.kafka.fetching.fetch_endpoint import (
    MEMORY_BYTES,
    NEWEST,
    SHARE_BYTES,
    TOPIC_ID,
    VERSIONS,
    FetchEndpoint,
    Kio,
    Want,
    errors,
    fetch_request,
    told,
)
from tierd.errors import BackendUnavailableError, OffsetOutOfRangeError, RemoteIntegrityError
from tierd.serve.kafka.fetching.fetch_round import FetchLimits
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer

NO_PAUSE = FetchLimits(failure_pause_s=0.0)


@pytest.fixture
def endpoint() -> FetchEndpoint:
    return FetchEndpoint(NO_PAUSE)


def named(version: int) -> str | UUID:
    return TOPIC_ID if version >= 13 else "orders"


def through_kio(message: Kio) -> Kio:
    """Return a message as it is after encoding and decoding."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    decoded, _ = entity_reader(type(message))(buffer.getvalue(), 0)
    return decoded


@pytest.mark.parametrize("version", VERSIONS)
async def test_fetch_of_every_version_returns_batches_and_bounds(endpoint: FetchEndpoint, version: int) -> None:
    [log] = endpoint.served.add_topic("orders")
    batches = [log.append([b"one", b"two"]), log.append([b"three"])]
    request = through_kio(fetch_request([Want(named(version), offset=1)], version=version))
    answer = await endpoint.ask(request)
    response: Kio = answer.response
    assert through_kio(response) == response
    assert response.__version__ == version
    [one] = told(answer).values()
    assert one.records == b"".join(bytes(batch.data) for batch in batches)
    assert (one.error, one.fields.high_watermark, one.fields.last_stable_offset) == ("none", 3, 3)
    assert getattr(one.fields, "log_start_offset", 0) == 0
    assert getattr(one.fields, "preferred_read_replica", -1) == -1
    assert response.throttle_time.total_seconds() == 0
    assert getattr(response, "session_id", 0) == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_aborted_transactions_are_null_for_uncommitted_and_a_list_for_committed_reads(
    endpoint: FetchEndpoint, version: int
) -> None:
    [log] = endpoint.served.add_topic("orders")
    log.append(transaction_of=7)
    log.append(transaction_of=8)
    log.end_transaction(8, commit=False)
    log.end_transaction(7, commit=False)
    want = Want(named(version))
    uncommitted = through_kio((await endpoint.ask(fetch_request([want], version=version))).response)
    assert uncommitted.responses[0].partitions[0].aborted_transactions is None
    committed = through_kio((await endpoint.ask(fetch_request([want], version=version, isolation=1))).response)
    listed = committed.responses[0].partitions[0].aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in listed] == [(7, 0), (8, 1)], "by first offset"
    at_end = Want(named(version), offset=4)
    empty = (await endpoint.fetch(at_end, version=version, isolation=1))[named(version), 0]
    assert empty.fields.aborted_transactions == ()


async def test_committed_read_ends_at_the_last_stable_offset(endpoint: FetchEndpoint) -> None:
    [log] = endpoint.served.add_topic("orders")
    decided = log.append()
    log.append(transaction_of=7)
    [one] = (await endpoint.fetch(Want(TOPIC_ID), isolation=1)).values()
    assert one.records == bytes(decided.data)
    assert (one.fields.last_stable_offset, one.fields.high_watermark) == (1, 2)
    [waiting] = (await endpoint.fetch(Want(TOPIC_ID, offset=1), isolation=1)).values()
    assert (waiting.records, waiting.error) == (b"", "none")


async def test_slices_of_files_need_no_memory(endpoint: FetchEndpoint, tmp_path: Path) -> None:
    [log] = endpoint.served.add_topic("orders")
    log.append([b"x" * 1000])
    log.keep_in(tmp_path / "0.log")
    answer = await endpoint.ask(fetch_request([Want(TOPIC_ID)]))
    [one] = told(answer).values()
    assert one.records == bytes(log.batches[0].data)
    assert endpoint.budget.used_bytes == 0


async def test_read_from_the_local_log_does_not_wait_for_memory(endpoint: FetchEndpoint, tmp_path: Path) -> None:
    [log] = endpoint.served.add_topic("orders")
    log.append()
    log.keep_in(tmp_path / "0.log")
    await endpoint.budget.take(MEMORY_BYTES)
    [one] = (await asyncio.wait_for(endpoint.fetch(Want(TOPIC_ID)), 5)).values()
    assert one.records == bytes(log.batches[0].data)


async def test_read_into_memory_waits_until_memory_is_free(endpoint: FetchEndpoint) -> None:
    [log] = endpoint.served.add_topic("orders")
    log.append()
    await endpoint.budget.take(MEMORY_BYTES)
    fetch = asyncio.create_task(endpoint.fetch(Want(TOPIC_ID)))
    await eventually(lambda: endpoint.budget.waiting == 1, what="the wait for memory")
    assert not log.calls["read"]
    endpoint.budget.give(MEMORY_BYTES)
    assert (await fetch)[TOPIC_ID, 0].records


async def test_records_in_memory_are_bounded_by_the_share_of_a_connection(endpoint: FetchEndpoint) -> None:
    logs = endpoint.served.add_topic("orders", partitions=2)
    for log in logs:
        log.append([b"x" * 100])
    largest = SHARE_BYTES + 1
    await endpoint.fetch(Want(TOPIC_ID, 0, max_bytes=largest), max_bytes=largest)
    assert logs[0].reads == [(0, SHARE_BYTES)]


@pytest.mark.parametrize(
    ("want", "error"),
    [
        (Want("absent"), "unknown_topic_or_partition"),
        (Want("orders", 1), "unknown_topic_or_partition"),
        (Want("orders", -1), "unknown_topic_or_partition"),
        (Want("secret"), "topic_authorization_failed"),
        (Want("orders", epoch=4), "fenced_leader_epoch"),
        (Want("orders", epoch=6), "unknown_leader_epoch"),
        (Want("orders", offset=-1), "offset_out_of_range"),
        (Want("orders", offset=4), "offset_out_of_range"),
        (Want("orders", offset=8), "offset_not_available"),
    ],
)
async def test_partition_that_cannot_be_read_has_an_error_and_others_are_read(
    endpoint: FetchEndpoint, want: Want, error: str
) -> None:
    endpoint.served.add_topic("secret")
    [log] = endpoint.served.add_topic("orders", leader_epoch=5)
    log.log_start_offset = 5
    log.append([b"one", b"two"])
    endpoint.served.add_topic("payments")[0].append()
    endpoint.authorizer.forbidden.add("secret")
    answers = await endpoint.fetch(want, Want("payments"), version=12)
    assert errors(answers) == [error, "none"]
    assert answers["payments", 0].records
    assert answers[want.topic, want.partition].fields.high_watermark == -1


async def test_topic_id_that_is_unknown_or_forbidden_is_told_apart(endpoint: FetchEndpoint) -> None:
    endpoint.served.add_topic("orders")
    endpoint.authorizer.forbidden.add("orders")
    answers = await endpoint.fetch(Want(UUID(int=9)), Want(TOPIC_ID))
    assert errors(answers) == ["unknown_topic_id", "topic_authorization_failed"]


async def test_fenced_client_is_told_the_leader_and_where_it_is(endpoint: FetchEndpoint) -> None:
    endpoint.served.add_topic("orders", partitions=2, leader_epoch=5)
    answer = await endpoint.ask(fetch_request([Want(TOPIC_ID, 1, epoch=4)]))
    [one] = told(answer).values()
    assert (one.fields.current_leader.leader_id, one.fields.current_leader.leader_epoch) == (2, 5)
    response: Kio = answer.response
    assert [(node.node_id, node.host) for node in response.node_endpoints] == [(2, "two.example")]


async def test_partition_without_a_log_sends_the_client_to_its_leader(endpoint: FetchEndpoint) -> None:
    endpoint.served.add_topic("orders", partitions=2)
    for number in (0, 1):
        endpoint.served.forget_log("orders", number)
    answers = await endpoint.fetch(Want(TOPIC_ID, 0), Want(TOPIC_ID, 1))
    assert errors(answers) == ["unknown_topic_or_partition", "not_leader_or_follower"]


async def test_client_at_an_end_that_only_the_leader_knows_is_sent_to_the_leader(endpoint: FetchEndpoint) -> None:
    logs = endpoint.served.add_topic("orders", partitions=2)
    for log in logs:
        log.append()
        log.is_end_known = False
    answers = await endpoint.fetch(Want(TOPIC_ID, 0, offset=1), Want(TOPIC_ID, 1, offset=1))
    assert errors(answers) == ["none", "not_leader_or_follower"]
    logs[1].is_end_known = True
    assert errors(await endpoint.fetch(Want(TOPIC_ID, 1, offset=1))) == ["none"]


@pytest.mark.parametrize(("version", "error"), [(10, "not_leader_or_follower"), (11, "offset_not_available")])
async def test_offset_above_the_end_is_never_out_of_range(endpoint: FetchEndpoint, version: int, error: str) -> None:
    [log] = endpoint.served.add_topic("orders")
    for is_end_known in (True, False):
        log.is_end_known = is_end_known
        assert errors(await endpoint.fetch(Want("orders", offset=1), version=version)) == [error]


async def test_offset_in_a_hole_of_the_log_is_a_storage_error_and_a_warning(endpoint: FetchEndpoint) -> None:
    [log] = endpoint.served.add_topic("orders")
    log.append()
    with capture_logs() as lines:
        for _ in range(3):
            log.fail("read", OffsetOutOfRangeError("orders-0: offset 0 is in neither tier", remedy="run tierd verify"))
            assert errors(await endpoint.fetch(Want(TOPIC_ID))) == ["kafka_storage_error"]
    assert [(line["event"], line["offset"], line["remedy"]) for line in lines] == [
        ("kafka_fetch_found_hole", 0, "run tierd verify")
    ]


async def test_client_that_waits_for_long_behind_the_end_is_told_of_in_the_log(endpoint: FetchEndpoint) -> None:
    [log] = endpoint.served.add_topic("orders")
    log.append([b"one", b"two"])
    with capture_logs() as lines:
        for waited_s in (0, 20, 20):
            assert not lines
            endpoint.clock.advance(waited_s)
            answer = endpoint.fetch(Want(TOPIC_ID, offset=60), max_wait_ms=0)
            assert errors(await answer) == ["offset_not_available"]
    assert [(line["event"], line["offset"]) for line in lines] == [("kafka_fetch_beyond_end", 60)]
    assert "ends at 2" in lines[0]["error"]


async def test_offset_that_expires_before_its_read_is_out_of_range(endpoint: FetchEndpoint) -> None:
    [log] = endpoint.served.add_topic("orders")
    log.append([b"one", b"two"])
    held = log.hold("read")
    fetch = asyncio.create_task(endpoint.fetch(Want(TOPIC_ID)))
    await eventually(lambda: log.calls["read"] == 1, what="the read")
    log.log_start_offset = 1
    held.set()
    assert errors(await fetch) == ["offset_out_of_range"]


@pytest.mark.parametrize("method", ["bounds", "read"])
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (BackendUnavailableError("the store is away"), "kafka_storage_error"),
        (RemoteIntegrityError("a bit is wrong"), "corrupt_message"),
    ],
)
async def test_failure_of_one_partition_leaves_the_others_alone(
    endpoint: FetchEndpoint, method: str, failure: Exception, error: str
) -> None:
    logs = endpoint.served.add_topic("orders", partitions=2)
    for log in logs:
        log.append()
    logs[0].fail(method, failure)
    with capture_logs() as lines:
        answers = await endpoint.fetch(Want(TOPIC_ID, 0), Want(TOPIC_ID, 1))
    assert errors(answers) == [error, "none"]
    assert answers[TOPIC_ID, 1].records
    assert [(line["event"], line["error"]) for line in lines] == [("kafka_fetch_failed", str(failure))]


async def test_client_whose_log_diverges_is_told_the_last_epoch_in_common(endpoint: FetchEndpoint) -> None:
    [log] = endpoint.served.add_topic("orders", leader_epoch=3)
    log.append([b"one", b"two"], epoch=1)
    log.append(epoch=3)
    [one] = (await endpoint.fetch(Want(TOPIC_ID, offset=3, last_epoch=1))).values()
    assert (one.error, one.records) == ("none", b"")
    assert (one.fields.diverging_epoch.epoch, one.fields.diverging_epoch.end_offset) == (1, 2)
    [same] = (await endpoint.fetch(Want(TOPIC_ID, offset=2, last_epoch=1))).values()
    assert same.records
    assert same.fields.diverging_epoch.epoch == -1


async def test_answer_keeps_its_size_but_for_the_first_batch(endpoint: FetchEndpoint) -> None:
    logs = endpoint.served.add_topic("orders", partitions=3)
    for log in logs:
        log.append([b"x" * 500])
        log.append([b"x" * 500])
    size = logs[0].batches[0].size_bytes
    wants = [Want(TOPIC_ID, number) for number in range(3)]
    tiny = await endpoint.fetch(*wants, max_bytes=10)
    assert [len(each.records) for each in tiny.values()] == [size, 0, 0]
    three = await endpoint.fetch(*wants, max_bytes=3 * size)
    assert [len(each.records) for each in three.values()] == [2 * size, size, 0]
    each_one = await endpoint.fetch(*(Want(TOPIC_ID, number, max_bytes=size) for number in range(3)))
    assert [len(each.records) for each in each_one.values()] == [size, size, size]


async def test_endpoint_and_quota_bound_the_size_of_an_answer() -> None:
    endpoint = FetchEndpoint(FetchLimits(max_bytes=4000))
    [log] = endpoint.served.add_topic("orders")
    log.append([b"x" * 500])
    await endpoint.fetch(Want(TOPIC_ID))
    endpoint.quotas.largest_bytes = 700
    await endpoint.fetch(Want(TOPIC_ID))
    assert log.reads == [(0, 4000), (0, 700)]


async def test_reads_of_one_fetch_run_at_once_within_their_bound() -> None:
    endpoint = FetchEndpoint(FetchLimits(concurrent_reads=3))
    logs = endpoint.served.add_topic("orders", partitions=8)
    for log in logs:
        log.append()
    held = [log.hold("read") for log in logs]
    fetch = asyncio.create_task(endpoint.fetch(*(Want(TOPIC_ID, number) for number in range(8))))
    await eventually(lambda: sum(log.calls["read"] for log in logs) >= 3, what="three reads")
    for _ in range(20):
        await asyncio.sleep(0)
    assert sum(log.calls["read"] for log in logs) == 3
    for event in held:
        event.set()
    assert all(each.records for each in (await fetch).values())


async def test_replica_is_refused_as_one_without_the_right_to_copy(endpoint: FetchEndpoint) -> None:
    endpoint.served.add_topic("orders")[0].append()
    for version in VERSIONS:
        answers = await endpoint.fetch(Want(named(version)), version=version, replica_id=1, session=(0, 0))
        assert errors(answers) == ["topic_authorization_failed"]
    assert endpoint.sessions.statistics().sessions == 0


async def test_unknown_isolation_level_is_an_invalid_request(endpoint: FetchEndpoint) -> None:
    endpoint.served.add_topic("orders")[0].append()
    assert errors(await endpoint.fetch(Want(TOPIC_ID), isolation=2)) == ["invalid_request"]


async def test_client_in_quarantine_gets_no_record_and_asks_again(endpoint: FetchEndpoint) -> None:
    [log] = endpoint.served.add_topic("orders")
    log.append()
    endpoint.authorizer.is_held = True
    assert errors(await endpoint.fetch(Want(TOPIC_ID))) == ["kafka_storage_error"]
    assert not log.calls["read"]
    endpoint.authorizer.is_held = False
    assert errors(await endpoint.fetch(Want(TOPIC_ID))) == ["none"]


async def test_principal_above_its_quota_is_told_to_wait_without_records(endpoint: FetchEndpoint) -> None:
    [log] = endpoint.served.add_topic("orders")
    log.append()
    session_id = await new_session(endpoint, Want(TOPIC_ID))
    endpoint.quotas.wait_ms = 1500
    for session, expected in [((0, 0), 0), ((session_id, 1), session_id)]:
        answer = await endpoint.ask(fetch_request([Want(TOPIC_ID)] if not session[0] else [], session=session))
        response: Kio = answer.response
        assert response.throttle_time.total_seconds() == 1.5
        assert (response.session_id, response.responses) == (expected, ())
    endpoint.quotas.wait_ms = 0
    assert (await endpoint.fetch(session=(session_id, 2)))[TOPIC_ID, 0].records, "the session goes on"


async def test_records_that_came_when_others_had_used_the_quota_up_are_withheld(endpoint: FetchEndpoint) -> None:
    [log] = endpoint.served.add_topic("orders")
    size = log.append().size_bytes
    session_id = await new_session(endpoint, Want(TOPIC_ID, offset=1))
    endpoint.quotas.late_wait_ms = 1500
    answer = await endpoint.ask(fetch_request([Want(TOPIC_ID)], session=(session_id, 1)))
    response: Kio = answer.response
    assert (response.throttle_time.total_seconds(), response.session_id) == (1.5, session_id)
    assert (response.responses, answer.records, answer.counted_bytes) == ((), {}, 0)
    endpoint.quotas.late_wait_ms = 0
    answer = await endpoint.ask(fetch_request(session=(session_id, 2)))
    assert told(answer)[TOPIC_ID, 0].records
    assert (answer.counted_bytes, endpoint.quotas.admitted_bytes) == (size, size)


async def new_session(endpoint: FetchEndpoint, *wants: Want, version: int = NEWEST) -> int:
    response: Kio = (await endpoint.ask(fetch_request(wants, session=(0, 0), version=version))).response
    session_id: int = response.session_id
    assert session_id
    return session_id


@pytest.mark.parametrize("version", [each for each in VERSIONS if each >= 7])
async def test_session_answers_only_what_is_new_and_reads_the_partitions_in_turn(
    endpoint: FetchEndpoint, version: int
) -> None:
    logs = endpoint.served.add_topic("orders", partitions=3)
    for log in logs:
        log.append()
    topic = named(version)
    session_id = await new_session(endpoint, *(Want(topic, number, offset=1) for number in range(3)), version=version)
    epochs = iter(range(1, 10))

    async def go_on(*wants: Want, **fields: Kio) -> list[int]:
        """Return the partitions of the next answer: those with records, negative ones with other news only."""
        found = await endpoint.fetch(*wants, session=(session_id, next(epochs)), version=version, **fields)
        return [number if each.records else -number for (_, number), each in found.items()]

    assert await go_on() == []
    for log in logs:
        log.append()
        log.append()
    size = logs[0].batches[0].size_bytes
    assert await go_on(max_bytes=2 * size) == [0, -1, -2], "all have another high watermark"
    assert await go_on(max_bytes=2 * size) == [1]
    assert await go_on(max_bytes=2 * size) == [2]
    assert await go_on(Want(topic, 0, offset=2), max_bytes=2 * size) == [0, 1]
    assert await go_on(forget=[(topic, 1)]) == [2, 0]


@pytest.mark.parametrize("epoch", [0, -1])
async def test_request_that_names_all_its_partitions_forgets_none(endpoint: FetchEndpoint, epoch: int) -> None:
    endpoint.served.add_topic("orders")[0].append()
    found = await endpoint.fetch(Want(TOPIC_ID), session=(0, epoch), forget=[(TOPIC_ID, 0)])
    assert found[TOPIC_ID, 0].records


async def test_request_of_a_session_that_is_unknown_or_out_of_step_is_refused_whole(endpoint: FetchEndpoint) -> None:
    endpoint.served.add_topic("orders")[0].append()
    session_id = await new_session(endpoint, Want(TOPIC_ID))
    for session, error in [
        ((session_id + 1, 1), "fetch_session_id_not_found"),
        ((session_id, 2), "invalid_fetch_session_epoch"),
    ]:
        response: Kio = (await endpoint.ask(fetch_request(session=session))).response
        assert (response.error_code.name, response.responses, response.session_id) == (error, (), 0)


async def test_topic_of_a_session_that_is_deleted_has_an_error_until_the_client_forgets_it(
    endpoint: FetchEndpoint,
) -> None:
    endpoint.served.add_topic("orders")
    session_id = await new_session(endpoint, Want(TOPIC_ID))
    endpoint.served.remove_topic("orders")
    assert errors(await endpoint.fetch(session=(session_id, 1))) == ["unknown_topic_id"]
    assert errors(await endpoint.fetch(session=(session_id, 2))) == ["unknown_topic_id"]


async def test_neighbours_of_one_topic_are_one_entry_of_the_answer(endpoint: FetchEndpoint) -> None:
    for name in ("orders", "payments"):
        endpoint.served.add_topic(name, partitions=2)
    wants = [Want("orders", 0), Want("orders", 1), Want("payments", 0)]
    answer: FetchAnswer = await endpoint.ask(fetch_request(wants, version=12))
    response: Kio = answer.response
    assert [(topic.topic, len(topic.partitions)) for topic in response.responses] == [("orders", 2), ("payments", 1)]


async def test_partition_that_is_named_twice_is_answered_once_from_its_last_place(endpoint: FetchEndpoint) -> None:
    [log] = endpoint.served.add_topic("orders")
    log.append()
    second = log.append()
    answers = await endpoint.fetch(Want(TOPIC_ID, offset=0), Want(TOPIC_ID, offset=1))
    assert [each.records for each in answers.values()] == [bytes(second.data)]


async def test_client_that_connects_again_goes_on_in_its_session_or_begins_a_new_one_in_its_place(
    endpoint: FetchEndpoint,
) -> None:
    async def asked(session: tuple[int, int], *wants: Want, **circumstances: Kio) -> tuple[str, int]:
        response: Kio = (await endpoint.ask(fetch_request(wants, session=session), **circumstances)).response
        return response.error_code.name, response.session_id

    [log] = endpoint.served.add_topic("orders")
    log.append()
    _, session_id = await asked((0, 0), Want(TOPIC_ID))
    assert await asked((session_id, 1), connection_id=2) == ("none", session_id)
    other = await asked((session_id, 2), connection_id=3, principal="User:mallory")
    assert other == ("fetch_session_id_not_found", 0)
    _, renewed_id = await asked((session_id, 0), Want(TOPIC_ID), connection_id=4)
    assert renewed_id not in (0, session_id)
    assert endpoint.sessions.statistics().sessions == 1
