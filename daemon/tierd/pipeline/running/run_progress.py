"""RunProgress: the progress of the run under way, for status and metrics, and in the end for the history."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tierd.pipeline.committing import RunStatistics, RunTally
from tierd.pipeline.running.run_history import PROBLEMS_KEPT, RunOutcome, RunReport
from tierd.telemetry import PipelineUse

_LONGEST_PROBLEM: Final = 2_000


@dataclass(slots=True, kw_only=True)
class RunProgress:
    """Progress of the run under way, set by its tasks; lives on the event loop.

    Attributes:
        stage: present stage of the run, in a word or two.
        done: part of ``total`` that is done, in the unit of the stage.
        total: size of the stage; 0 while it is unknown.
        problems: the first few problems.
        problem_count: number of all problems.
    """

    run_id: str
    trigger: str
    attempt: int
    began_ms: int
    stage: str = "planning"
    done: int = 0
    total: int = 0
    tally: RunTally = field(default_factory=RunTally)
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0
    log_file: str = ""
    _read_statistics: Callable[[], RunStatistics] | None = None

    def follow(self, statistics: Callable[[], RunStatistics]) -> None:
        """Have ``refresh`` take over the statistics of the run's leader from now on."""
        self._read_statistics = statistics

    def refresh(self) -> None:
        """Take over the present statistics of the leader."""
        if self._read_statistics is None:
            return
        statistics = self._read_statistics()
        self.enter(statistics.stage, done=statistics.stage_done, total=statistics.stage_total)
        self.tally, self.counts = statistics.tally, dict(statistics.counts)

    def enter(self, stage: str, *, done: int = 0, total: int = 0) -> None:
        """Set the present stage."""
        self.stage, self.done, self.total = stage, done, total

    def add_problem(self, problem: str) -> None:
        """Note a problem; the run goes on."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(problem[:_LONGEST_PROBLEM])

    def outcome(self) -> RunOutcome:
        """Return the outcome of a run that ended by itself."""
        tally = self.tally
        if self.problem_count or tally.groups_failed:
            did_some = tally.groups_replaced or tally.groups_unchanged or tally.audited_segments
            return RunOutcome.PARTLY if did_some else RunOutcome.FAILED
        return RunOutcome.SUCCEEDED if tally.partitions or tally.audited_segments else RunOutcome.NOTHING_DUE

    def ended(self, outcome: RunOutcome, now_ms: int) -> RunReport:
        """Return the report of the run."""
        return RunReport(
            run_id=self.run_id,
            trigger=self.trigger,
            attempt=self.attempt,
            began_ms=self.began_ms,
            ended_ms=now_ms,
            outcome=outcome,
            tally=self.tally,
            counts=dict(self.counts),
            problems=tuple(self.problems),
            log_file=self.log_file,
        )


@dataclass(slots=True)
class RunTotals:
    """Totals of the runs since the start."""

    runs: Counter[str] = field(default_factory=Counter)
    last_ended_s: dict[str, float] = field(default_factory=dict)
    tally: RunTally = field(default_factory=RunTally)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, record: RunReport) -> None:
        """Count a run that ended."""
        self.runs[record.outcome.value] += 1
        self.last_ended_s[record.outcome.value] = record.ended_ms / 1000
        self.tally += record.tally
        self.counts.update(record.counts)

    def use(self, current: RunProgress | None, next_begin_ms: int | None) -> PipelineUse:
        """Return the totals and the run under way, as metrics show them."""
        if current is not None:
            current.refresh()
        tally = self.tally
        return PipelineUse(
            running=current is not None,
            progress=0.0 if current is None or not current.total else min(1.0, current.done / current.total),
            next_begin_s=None if next_begin_ms is None else next_begin_ms / 1000,
            runs=dict(self.runs),
            last_ended_s=dict(self.last_ended_s),
            groups=_groups(tally) if self.runs else {},
            audited=_audited(tally) if self.runs else {},
            audited_bytes=tally.audited_bytes,
            bytes_before=tally.bytes_before,
            bytes_after=tally.bytes_after,
            counts=dict(self.counts),
        )


def _groups(tally: RunTally) -> dict[str, int]:
    return {"replaced": tally.groups_replaced, "unchanged": tally.groups_unchanged, "failed": tally.groups_failed}


def _audited(tally: RunTally) -> dict[str, int]:
    return {"sound": tally.audited_segments - tally.damaged_segments, "damaged": tally.damaged_segments}
