"""Codes for clients."""

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from tierd.errors import (
    BackendUnavailableError,
    BatchTooLargeError,
    CorruptIndexError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    RemoteAccessError,
    RemoteIntegrityError,
    RemoteStorageNotReadyError,
    SegmentChangedError,
    UnknownPartitionError,
)
from tierd.serve.kafka.client_errors import AskedFor, error_code_for, fetch_code_in_version

_PASSING = [
    BackendUnavailableError("down"),
    RemoteStorageNotReadyError("loading"),
    SegmentChangedError("rolled"),
    RemoteAccessError("refused"),
    BatchTooLargeError("file", 0, "too large"),
]
_DAMAGED = [CorruptRecordError("file", 0, "torn"), CorruptIndexError("index"), RemoteIntegrityError("bytes")]
_NEWEST = 18


def _codes(errors: list[Exception], asked_for: AskedFor, *, version: int = _NEWEST) -> set[ErrorCode]:
    return {error_code_for(each, asked_for, version=version) for each in errors}


@pytest.mark.parametrize(
    ("asked_for", "passing", "slow", "damaged"),
    [
        (AskedFor.FETCH, ErrorCode.kafka_storage_error, ErrorCode.kafka_storage_error, ErrorCode.corrupt_message),
        (AskedFor.LIST_OFFSETS, ErrorCode.leader_not_available, ErrorCode.request_timed_out, ErrorCode.corrupt_message),
        (AskedFor.EPOCH_END, ErrorCode.kafka_storage_error, ErrorCode.kafka_storage_error, ErrorCode.corrupt_message),
        (AskedFor.GROUP, *[ErrorCode.coordinator_not_available] * 3),
    ],
)
def test_trouble_of_tierd_is_answered_as_the_table_says(
    asked_for: AskedFor, passing: ErrorCode, slow: ErrorCode, damaged: ErrorCode
) -> None:
    assert _codes([*_PASSING], asked_for) == {passing}
    assert _codes([TimeoutError()], asked_for) == {slow}
    assert _codes([*_DAMAGED], asked_for) == {damaged}
    assert _codes([UnknownPartitionError("gone")], asked_for) == {ErrorCode.unknown_topic_or_partition}


@pytest.mark.parametrize("asked_for", AskedFor)
def test_code_for_passing_trouble_is_one_that_clients_retry(asked_for: AskedFor) -> None:
    for version in range(_NEWEST + 1):
        assert all(code.retriable for code in _codes([*_PASSING, TimeoutError()], asked_for, version=version))


def test_offset_out_of_range_resets_positions_of_a_fetch_only() -> None:
    error = OffsetOutOfRangeError("beyond")
    assert error_code_for(error, AskedFor.FETCH, version=_NEWEST) is ErrorCode.offset_out_of_range
    others = [each for each in AskedFor if each is not AskedFor.FETCH]
    assert ErrorCode.offset_out_of_range not in {error_code_for(error, each, version=1) for each in others}


@pytest.mark.parametrize(
    ("version", "storage", "not_available"),
    [
        (4, ErrorCode.not_leader_or_follower, ErrorCode.not_leader_or_follower),
        (5, ErrorCode.not_leader_or_follower, ErrorCode.not_leader_or_follower),
        (6, ErrorCode.kafka_storage_error, ErrorCode.not_leader_or_follower),
        (10, ErrorCode.kafka_storage_error, ErrorCode.not_leader_or_follower),
        (11, ErrorCode.kafka_storage_error, ErrorCode.offset_not_available),
    ],
)
def test_fetch_is_answered_with_codes_that_clients_of_its_version_know(
    version: int, storage: ErrorCode, not_available: ErrorCode
) -> None:
    assert fetch_code_in_version(ErrorCode.kafka_storage_error, version) is storage
    assert fetch_code_in_version(ErrorCode.offset_not_available, version) is not_available
    assert error_code_for(BackendUnavailableError("down"), AskedFor.FETCH, version=version) is storage
    assert fetch_code_in_version(ErrorCode.offset_out_of_range, version) is ErrorCode.offset_out_of_range


@pytest.mark.parametrize("asked_for", AskedFor)
def test_bug_is_an_unknown_error_for_clients_and_a_traceback_in_the_log(asked_for: AskedFor) -> None:
    error = RuntimeError("password=secret")
    with capture_logs() as lines:
        assert error_code_for(error, asked_for, version=1) is ErrorCode.unknown_server_error
    assert [(each["event"], each["exc_info"]) for each in lines] == [("kafka_request_failed", error)]


def test_trouble_of_tierd_writes_no_line_here() -> None:
    with capture_logs() as lines:
        _codes([*_PASSING, *_DAMAGED, TimeoutError()], AskedFor.FETCH)
    assert lines == []
