"""RunProgress: how far the run that is under way has come, for status and metrics, and in the end for the history."""

from dataclasses import dataclass, field
from typing import Final

from tierd.pipeline.running.history import PROBLEMS_KEPT, RunOutcome, RunRecord

_LONGEST_PROBLEM: Final = 2_000


@dataclass(slots=True, kw_only=True)
class RunProgress:
    """Filled by whoever works, read by whoever asks; lives on the event loop.

    Attributes:
        stage: what it is at, in a word or two.
        done: of ``total``, in the unit of the stage; ``total`` is 0 while nobody knows.
        problems: the first few, and ``problem_count`` of all.
    """

    run_id: str
    trigger: str
    attempt: int
    began_ms: int
    stage: str = "planning"
    done: int = 0
    total: int = 0
    partitions: int = 0
    groups_replaced: int = 0
    groups_unchanged: int = 0
    groups_failed: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0
    log_file: str = ""

    def enter(self, stage: str, *, done: int = 0, total: int = 0) -> None:
        """Say what it is at."""
        self.stage, self.done, self.total = stage, done, total

    def add_problem(self, problem: str) -> None:
        """Note what went wrong; the run goes on."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(problem[:_LONGEST_PROBLEM])

    def outcome(self) -> RunOutcome:
        """How the run ended that came to its end by itself."""
        if self.problem_count or self.groups_failed:
            return RunOutcome.PARTLY if self.groups_replaced or self.groups_unchanged else RunOutcome.FAILED
        return RunOutcome.SUCCEEDED if self.partitions else RunOutcome.NOTHING_DUE

    def ended(self, outcome: RunOutcome, now_ms: int) -> RunRecord:
        """The record of the run."""
        return RunRecord(
            run_id=self.run_id,
            trigger=self.trigger,
            attempt=self.attempt,
            began_ms=self.began_ms,
            ended_ms=now_ms,
            outcome=outcome,
            partitions=self.partitions,
            groups_replaced=self.groups_replaced,
            groups_unchanged=self.groups_unchanged,
            groups_failed=self.groups_failed,
            bytes_before=self.bytes_before,
            bytes_after=self.bytes_after,
            counts=dict(self.counts),
            problems=tuple(self.problems),
            log_file=self.log_file,
        )
