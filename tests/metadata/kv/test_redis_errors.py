import pytest
from redis import exceptions

from tierd.errors import BackendUnavailableError, MetadataError
from tierd.masking import Masking
from tierd.metadata.kv import redis_errors
from tierd.metadata.kv.refusals import WritesRefusedError, at_opening


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), "tierd tries again"),
        (exceptions.ReadOnlyError("You can't write against a read only replica."), "primary"),
        (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "maxmemory"),
        (exceptions.AuthenticationError("Authentication required."), "password"),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"), "disk"),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."), "min-replicas-to-write"),
        (exceptions.MovedError("1234 127.0.0.1:7001"), "node of the cluster"),
    ],
)
def test_refusal_of_the_server_is_retriable_and_has_a_remedy(error: Exception, remedy: str) -> None:
    assert redis_errors.is_refusal(error)
    refused = redis_errors.refused("redis host", Masking(), error)
    assert remedy in refused.remedy
    assert refused.retriable


def test_missing_answer_is_no_refusal() -> None:
    for error in (exceptions.ConnectionError("Connection closed by server."), TimeoutError(), ConnectionResetError()):
        assert not redis_errors.is_refusal(error)


def test_attempts_to_open_end_only_at_errors_that_need_a_person() -> None:
    def opened(cause: Exception) -> MetadataError:
        return at_opening(redis_errors.refused("redis host", Masking(), cause))

    assert not opened(exceptions.AuthenticationError("invalid username-password pair")).retriable
    assert not opened(exceptions.ResponseError("WRONGTYPE Operation against a key")).retriable
    assert isinstance(opened(exceptions.BusyLoadingError("loading")), BackendUnavailableError)
    assert isinstance(opened(ConnectionRefusedError("refused")), BackendUnavailableError)


@pytest.mark.parametrize(
    ("error", "refuses_writes"),
    [
        (exceptions.ReadOnlyError("You can't write against a read only replica."), True),
        (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), True),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"), True),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."), True),
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), False),
        (exceptions.AuthenticationError("invalid username-password pair"), False),
    ],
)
def test_full_or_replica_server_is_classified_as_refusing_writes(error: Exception, refuses_writes: bool) -> None:
    refused = redis_errors.refused("redis host", Masking(), error)
    assert isinstance(refused, WritesRefusedError) == refuses_writes
