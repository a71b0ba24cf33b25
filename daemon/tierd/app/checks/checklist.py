"""Checklist: named steps, each with its outcome, the reason and the next step."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tierd.errors import TierError

Outcome: TypeAlias = Literal["ok", "failed", "unreachable"]


@dataclass(frozen=True, slots=True)
class CheckStep:
    """Step that was taken; ``next_step`` is empty where nothing is to be done."""

    area: str
    name: str
    outcome: Outcome
    detail: str
    next_step: str = ""


class Checklist:
    """Steps that are taken one after the other, with their outcomes."""

    def __init__(self) -> None:
        self.steps: list[CheckStep] = []

    async def step(self, area: str, name: str, work: Callable[[], Awaitable[str]]) -> bool:
        """Do ``work``, which returns its observation, and record the outcome; return True if the step succeeded."""
        try:
            taken = CheckStep(area, name, "ok", await work())
        except TierError as error:
            outcome: Outcome = "unreachable" if error.retriable else "failed"
            taken = CheckStep(area, name, outcome, " ".join(str(error).split()), error.remedy)
        self.steps.append(taken)
        return taken.outcome == "ok"
