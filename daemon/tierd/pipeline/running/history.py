"""RunHistory: what past runs did, for ``tierd compact --history``; JSON lines in the state directory.

::

    <state dir>/pipeline-runs.jsonl    one line a run, the newest last; the oldest are dropped
"""

import os
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
from tierd.files import open_regular
from tierd.log import OsDisk
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
        """Return True if an operator should look."""
        return self in (RunOutcome.PARTLY, RunOutcome.FAILED, RunOutcome.TIMED_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One run.

    Attributes:
        trigger: ``schedule`` or ``command``.
        attempt: 1 for the first; a run that failed is tried again.
        tally: what came of it.
        counts: what the job counted, such as records read and dropped.
        problems: the first few.
        log_file: of the job; empty when none was started.
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
    """A run as the history has it and ``tierd compact --history --json`` prints it; the tally is not apart."""
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
    """The runs of one state directory, whose lock the caller holds. Blocking."""

    def __init__(self, state_dir: Path, *, runs_kept: int = _RUNS_KEPT) -> None:
        """Keep at most ``runs_kept`` runs."""
        self._path = state_dir / HISTORY_NAME
        self._runs_kept = runs_kept

    def append(self, record: RunReport) -> None:
        """Add a run; durable when this returns, and a crash leaves the file as it was or as it is to be.

        Raises:
            StateDirError: it cannot be written.
        """
        lines = [*(_LINE.dump_json(known) for known in self.read()[-self._runs_kept + 1 :]), _LINE.dump_json(record)]
        temporary = self._path.with_suffix(".tmp")
        try:
            with os.fdopen(open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                file.write(b"".join(line + b"\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
            OsDisk().sync_directory(self._path.parent)
        except OSError as error:
            raise StateDirError(
                f"{self._path}: {error.strerror}", remedy="free disk space, or mend the disk"
            ) from error

    def read(self) -> list[RunReport]:
        """Every run that is kept, the oldest first; a line that cannot be understood is left out.

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
