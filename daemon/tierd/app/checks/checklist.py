"""Checklist: named steps, each with its outcome, the reason and the next step."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tierd.errors import TierError

CheckOutcome: TypeAlias = Literal["begun", "ok", "failed", "unreachable"]

_SLOW: Final = "check the network, the service or the disk behind it"


@dataclass(frozen=True, slots=True)
class CheckStep:
    """Step that was taken; ``next_step`` is empty where nothing is to be done."""

    area: str
    name: str
    outcome: CheckOutcome
    detail: str
    next_step: str = ""


class Checklist:
    """Steps that are taken one after the other, with their outcomes.

    Args:
        on_step: called with every step when it begins, with the outcome ``begun``, and when it was taken.
        step_timeout_s: longest time of a step; None leaves every step to its own deadlines.
    """

    def __init__(
        self, *, on_step: Callable[[CheckStep], None] = lambda _: None, step_timeout_s: float | None = None
    ) -> None:
        self.steps: list[CheckStep] = []
        self._on_step = on_step
        self._step_timeout_s = step_timeout_s

    async def step(self, area: str, name: str, work: Callable[[], Awaitable[str]]) -> bool:
        """Do ``work``, which returns its observation, and record the outcome; return True if the step succeeded."""
        self._on_step(CheckStep(area, name, "begun", ""))
        try:
            async with asyncio.timeout(self._step_timeout_s) as deadline:
                taken = CheckStep(area, name, "ok", await work())
        except TierError as error:
            outcome: CheckOutcome = "unreachable" if error.retriable else "failed"
            taken = CheckStep(area, name, outcome, " ".join(str(error).split()), error.remedy)
        except TimeoutError:
            if not deadline.expired():
                raise
            taken = CheckStep(area, name, "unreachable", f"no answer within {self._step_timeout_s:g} s", _SLOW)
        self.steps.append(taken)
        self._on_step(taken)
        return taken.outcome == "ok"
