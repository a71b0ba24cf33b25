import asyncpg
import pytest

from tierd.masking import Masking
from tierd.metadata.kv import postgres_errors
from tierd.metadata.kv.refusals import WritesRefusedError


def told(state: str) -> asyncpg.PostgresError:
    """The error that the server tells with this state."""
    return asyncpg.PostgresError.new({"C": state, "M": "for a test", "S": "ERROR"})


@pytest.mark.parametrize("state", ["08006", "08003", "08007", "40003", "57P01", "57P02", "57P05"])
def test_a_session_that_ended_may_have_committed(state: str) -> None:
    assert postgres_errors.is_unknown(told(state))
    assert not postgres_errors.is_answer(told(state))
    assert not postgres_errors.is_retried(told(state))


@pytest.mark.parametrize("state", ["25006", "42501", "53100", "55P03", "57014", "40001", "40P01", "XX000"])
def test_a_statement_that_the_server_refused_wrote_nothing(state: str) -> None:
    assert postgres_errors.is_answer(told(state))
    assert not postgres_errors.is_unknown(told(state))
    assert postgres_errors.is_retried(told(state)) == state.startswith("40")
    assert postgres_errors.refused("postgres host", Masking(), told(state)).remedy


def test_an_answer_that_never_came_leaves_the_outcome_open() -> None:
    for error in (TimeoutError(), ConnectionResetError(), asyncpg.InternalClientError("unexpected")):
        assert postgres_errors.is_unknown(error)
        assert not postgres_errors.is_answer(error)
    assert not postgres_errors.is_unknown(asyncpg.InterfaceError("the connection is closed"))


@pytest.mark.parametrize(
    ("state", "refuses_writes"), [("25006", True), ("53100", True), ("57014", False), ("28P01", False)]
)
def test_server_without_room_or_that_is_no_primary_takes_no_writes(state: str, refuses_writes: bool) -> None:
    refused = postgres_errors.refused("postgres host", Masking(), told(state))
    assert isinstance(refused, WritesRefusedError) == refuses_writes
