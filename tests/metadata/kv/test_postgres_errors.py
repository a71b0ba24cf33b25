import asyncpg
import pytest

from tierd.masking import Masking
from tierd.metadata.kv import postgres_errors
from tierd.metadata.kv.refusals import WritesRefusedError


def server_error(state: str) -> asyncpg.PostgresError:
    """Return the error of the server with this state."""
    return asyncpg.PostgresError.new({"C": state, "M": "for a test", "S": "ERROR"})


@pytest.mark.parametrize("state", ["08006", "08003", "08007", "40003", "57P01", "57P02", "57P05"])
def test_error_of_an_ended_session_is_of_unknown_outcome(state: str) -> None:
    assert postgres_errors.is_unknown(server_error(state))
    assert not postgres_errors.is_answer(server_error(state))
    assert not postgres_errors.is_retried(server_error(state))


@pytest.mark.parametrize("state", ["25006", "42501", "53100", "55P03", "57014", "40001", "40P01", "XX000"])
def test_refused_statement_is_an_answer_and_of_known_outcome(state: str) -> None:
    assert postgres_errors.is_answer(server_error(state))
    assert not postgres_errors.is_unknown(server_error(state))
    assert postgres_errors.is_retried(server_error(state)) == state.startswith("40")
    assert postgres_errors.refused("postgres host", Masking(), server_error(state)).remedy


def test_missing_answer_is_of_unknown_outcome() -> None:
    for error in (TimeoutError(), ConnectionResetError(), asyncpg.InternalClientError("unexpected")):
        assert postgres_errors.is_unknown(error)
        assert not postgres_errors.is_answer(error)
    assert not postgres_errors.is_unknown(asyncpg.InterfaceError("the connection is closed"))


@pytest.mark.parametrize(
    ("state", "refuses_writes"), [("25006", True), ("53100", True), ("57014", False), ("28P01", False)]
)
def test_full_or_read_only_server_is_classified_as_refusing_writes(state: str, refuses_writes: bool) -> None:
    refused = postgres_errors.refused("postgres host", Masking(), server_error(state))
    assert isinstance(refused, WritesRefusedError) == refuses_writes
