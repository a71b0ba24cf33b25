"""Checklists: every step has an outcome, also one that does not end."""

import asyncio

import pytest

from tierd.app.checks.checklist import Checklist, CheckStep
from tierd.errors import RemoteAccessError, RetriableRemoteStorageError


async def _answer() -> str:
    return "fine"


async def _fail() -> str:
    raise RemoteAccessError("denied\nby the store", remedy="correct the keys")


async def _fail_for_now() -> str:
    raise RetriableRemoteStorageError("busy")


async def _hang() -> str:
    await asyncio.Event().wait()
    return "never"


async def _time_out_inside() -> str:
    raise TimeoutError("of its own")


async def test_steps_are_recorded_with_the_kind_of_their_failure() -> None:
    checklist = Checklist()

    assert await checklist.step("a", "1", _answer)
    assert not await checklist.step("a", "2", _fail)
    assert not await checklist.step("a", "3", _fail_for_now)

    assert checklist.steps == [
        CheckStep("a", "1", "ok", "fine"),
        CheckStep("a", "2", "failed", "denied by the store", "correct the keys"),
        CheckStep("a", "3", "unreachable", "busy"),
    ]


async def test_step_that_takes_too_long_is_unreachable_and_the_next_one_is_taken() -> None:
    checklist = Checklist(step_timeout_s=0.01)

    assert not await checklist.step("log dirs", "/srv", _hang)
    assert await checklist.step("log dirs", "identity", _answer)

    first, second = checklist.steps
    assert (first.outcome, first.detail) == ("unreachable", "no answer within 0.01 s")
    assert first.next_step
    assert second.outcome == "ok"


async def test_each_step_is_told_when_it_begins_and_when_it_was_taken() -> None:
    told: list[tuple[str, str]] = []
    checklist = Checklist(on_step=lambda step: told.append((step.name, step.outcome)))

    await checklist.step("a", "1", _answer)
    await checklist.step("a", "2", _fail)

    assert told == [("1", "begun"), ("1", "ok"), ("2", "begun"), ("2", "failed")]
    assert [step.outcome for step in checklist.steps] == ["ok", "failed"]


async def test_timeout_that_is_a_bug_of_the_step_stays_visible() -> None:
    checklist = Checklist(step_timeout_s=60.0)

    with pytest.raises(TimeoutError, match="of its own"):
        await checklist.step("a", "1", _time_out_inside)
