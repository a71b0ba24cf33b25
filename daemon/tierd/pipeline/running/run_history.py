"""RunHistory: keeps what past runs did, for ``tierd compact --history``, as JSON lines in the state directory.

::

    <state dir>/pipeline-runs.jsonl    one line a run, the newest last; the oldest are dropped
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import (
    BeforeValidator,
    JsonValue,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    WrapSerializer,
)

from tierd.errors import StateDirError
from tierd.files import replace_privately
from tierd.pipeline.committing import RunTally

HISTORY_NAME: Final = "pipeline-runs.jsonl"
_RUNS_KEPT: Final = 500
PROBLEMS_KEPT: Final = 20


class RunOutcome(StrEnum):
    """Outcome of a run."""

    SUCCEEDED = "succeeded"
    NOTHING_DUE = "nothing_due"
    PARTLY = "partly"  # some groups or partitions could not be done; the others were
    FAILED = "failed"
    CANCELLED = "cancelled"  # by a shutdown, a pause, or Ctrl-C
    TIMED_OUT = "timed_out"

    @property
    def is_problem(self) -> bool:
        """Return True if an operator should look into the run."""
        return self in (RunOutcome.PARTLY, RunOutcome.FAILED, RunOutcome.TIMED_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Report of one run.

    Attributes:
        trigger: ``schedule`` or ``command``.
        attempt: 1 for the first; a scheduled run that failed is tried again.
        tally: results of the run.
        counts: counts of the job, such as records read and dropped.
        problems: the first few.
        log_file: log of the job; empty if no job was started.
    """

    run_id: str
    trigger: str
    attempt: int
    began_ms: int
    ended_ms: int
    outcome: RunOutcome
    tally: RunTally = field(default_factory=RunTally)
    counts: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    log_file: str = ""


def report_json(report: RunReport) -> dict[str, JsonValue]:
    """Return a run as the history and ``tierd compact --history --json`` have it, with the tally's fields in it."""
    facts: dict[str, JsonValue] = _LINE.dump_python(report, mode="json")
    return facts


def _flat(report: RunReport, facts_of: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
    flat: dict[str, JsonValue] = {}
    for name, value in facts_of(report).items():
        flat |= value if name == "tally" else {name: value}
    return flat


def _nested(facts: object) -> object:
    if not isinstance(facts, dict):
        return facts
    return facts | {"tally": {each.name: facts[each.name] for each in fields(RunTally) if each.name in facts}}


_LINE: Final = TypeAdapter(Annotated[RunReport, BeforeValidator(_nested), WrapSerializer(_flat)])


class RunHistory:
    """Runs of one state directory, whose lock the caller holds. Blocking."""

    def __init__(self, state_dir: Path, *, runs_kept: int = _RUNS_KEPT) -> None:
        """Keep at most ``runs_kept`` runs."""
        self._path = state_dir / HISTORY_NAME
        self._runs_kept = runs_kept

    def append(self, record: RunReport) -> None:
        """Add a run, durably; a crash leaves the former file or the new one.

        Raises:
            StateDirError: the file cannot be read or written.
        """
        lines = [*(_LINE.dump_json(known) for known in self.read()[-self._runs_kept + 1 :]), _LINE.dump_json(record)]
        try:
            replace_privately(self._path, b"".join(line + b"\n" for line in lines))
        except OSError as error:
            raise StateDirError(
                f"{self._path}: {error.strerror}", remedy="free disk space, or mend the disk"
            ) from error

    def read(self) -> list[RunReport]:
        """Return the runs that are kept, the oldest first; a line that cannot be understood is left out.

        Raises:
            StateDirError: the file cannot be read.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateDirError(
                f"{self._path}: {error.strerror}", remedy="mend the disk, or its permissions"
            ) from error
        records = []
        for line in content.splitlines():
            try:
                records.append(_LINE.validate_json(line))
            except ValidationError:  # a later tierd may know more; its runs are not worth a refusal
                continue
        return records
