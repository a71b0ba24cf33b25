"""RestoreJournal: the steps of one partition's restore, in the words of its journal (changelog-restore 4.2)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tierd.log import PARTITION_METADATA
from tierd.model import RemoteLogSegmentId, uuid_to_text
from tierd.restore.journal import Journal, JournalStep, read_steps
from tierd.restore.log_dir.part_fetch import FetchedFile
from tierd.restore.log_dir.restore_manifest import MANIFEST, has_only_logs
from tierd.restore.log_dir.restored_partition import RestoreStage
from tierd.restore.plan.partition_plan import PartitionPlan

JOURNAL: Final = "journal"

Identity = list[int]
"""Inode and modification time in ns of the ``partition.metadata`` of a directory: no broker writes that file again."""


class RestoreJournal:
    """Journal of one partition's restore.

    ::

        {"stage": "planned", "parts": [[segment id, start, end], …], "end_offset": …}
        {"stage": "fetched", "segment": …, "size_bytes": …, "crc32c": …}      a line a part
        {"stage": "verified"}
        {"stage": "staged", "identity": […], "report": {…}}       the directory is complete in the stage
        {"stage": "swapped"}  {"stage": "checkpointed"}  {"stage": "done"}

    A run whose plan differs from the last one, because the tier has grown, writes another line ``planned``. What was
    fetched for the plan before is used as far as the new plan has it.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @classmethod
    def open(cls, path: Path, job: Mapping[str, Any]) -> Self:
        """Open the journal of ``job``, or begin it; errors are those of ``Journal.open``."""
        return cls(Journal.open(path, job))

    def close(self) -> None:
        """Close it and release its lock."""
        self._journal.close()

    @property
    def stage(self) -> RestoreStage | None:
        """Return the last stage that the present plan has reached; None at the beginning."""
        steps = self._journal.steps
        return RestoreStage(steps[-1]["stage"]) if steps else None

    @property
    def staged(self) -> JournalStep | None:
        """Return the line ``staged`` of the present plan; None before it."""
        for step in reversed(self._journal.steps):
            if step["stage"] == RestoreStage.PLANNED:
                return None
            if step["stage"] == RestoreStage.STAGED:
                return step
        return None

    def fetched(self) -> dict[str, FetchedFile]:
        """Return what was fetched, by segment id."""
        return {
            step["segment"]: FetchedFile(step["size_bytes"], step["crc32c"])
            for step in self._journal.steps
            if step["stage"] == RestoreStage.FETCHED
        }

    def has_planned(self, plan: PartitionPlan) -> bool:
        """Return True if the last plan in the journal is ``plan``."""
        planned = next((s for s in reversed(self._journal.steps) if s["stage"] == RestoreStage.PLANNED), None)
        return planned == _planned(plan)

    def write_planned(self, plan: PartitionPlan) -> None:
        """Write the plan; blocking, as all that follow, with the errors of ``Journal.append``."""
        self._journal.append(_planned(plan))

    def write_fetched(self, segment: RemoteLogSegmentId, file: FetchedFile) -> None:
        """Write that a part is on the disk, whole and checked."""
        self._journal.append(
            {
                "stage": RestoreStage.FETCHED.value,
                "segment": uuid_to_text(segment.id),
                "size_bytes": file.size_bytes,
                "crc32c": file.crc32c,
            }
        )

    def write_staged(self, identity: Identity, report: Mapping[str, Any]) -> None:
        """Write that the directory is complete in the stage."""
        self._journal.append({"stage": RestoreStage.STAGED.value, "identity": identity, "report": dict(report)})

    def write(self, stage: RestoreStage) -> None:
        """Write that a stage without values of its own was reached."""
        self._journal.append({"stage": stage.value})


def has_restored(stage: Path, directory: Path) -> bool:
    """Return True if a restore with this stage has put the directory, and all that is in its logs, into the log dir.

    A restore that was killed behind its rename counts, too. Blocking.

    Raises:
        StateDirError: a journal cannot be read, or is damaged.
        OSError: the stage or the directory cannot be read.
    """
    identity, partition = identity_of(directory), stage / directory.name
    if identity is None or not partition.is_dir():
        return False
    for work in partition.iterdir():
        staged = [step for step in read_steps(work / JOURNAL) if step.get("stage") == RestoreStage.STAGED]
        if any(step["identity"] == identity for step in staged):
            return has_only_logs(directory, work / MANIFEST)
    return False


def is_done(steps: Sequence[JournalStep]) -> bool:
    """Return True if these steps are those of a restore that has ended."""
    return bool(steps) and steps[-1].get("stage") == RestoreStage.DONE


def identity_of(directory: Path) -> Identity | None:
    """Return the identity of a partition directory; None if it is not there, or has no ``partition.metadata``.

    Raises:
        OSError: it cannot be read.
    """
    try:
        status = (directory / PARTITION_METADATA).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [status.st_ino, status.st_mtime_ns]


def _planned(plan: PartitionPlan) -> JournalStep:
    return {
        "stage": RestoreStage.PLANNED.value,
        "log_start_offset": plan.log_start_offset,
        "end_offset": plan.end_offset,
        "parts": [[uuid_to_text(p.metadata.segment.id), p.start_offset, p.end_offset] for p in plan.parts],
        "epochs": [list(entry) for entry in plan.lineage.entries],
    }
