"""Replacing: puts an output in the place of its inputs, if every check passes.

::

    manifest fits ─► leadership proven ─► inputs unchanged ─► objects checked, .manifest ─► one atomic batch
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tierd.clock import Clock
from tierd.errors import RemoteStorageError
from tierd.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, SoftDelete
from tierd.pipeline.committing.open_outputs import OpenOutput
from tierd.pipeline.committing.output_checks import finished_output, inputs_problem, output_problem
from tierd.pipeline.committing.patient_metadata import PatientMetadata, WriteOutcome
from tierd.pipeline.committing.round import PartitionRound
from tierd.remote import SegmentManifest


class OutputStorage(Protocol):
    """Part of a remote storage that committing uses; ``SegmentStorage`` has it."""

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata) -> bytes:
        """Return the metadata by which this storage finds the segment's objects again."""

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one artefact, checked."""

    async def commit_log_segment(
        self, metadata: RemoteLogSegmentMetadata, manifest: SegmentManifest, replaces: Iterable[RemoteLogSegmentId]
    ) -> None:
        """Check a staged segment and store its manifest; a repeated call with the same manifest succeeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """Deadlines and retries of the leader, and the grace of replaced segments.

    Attributes:
        grace_s: how long the objects of replaced segments stay, for readers that still use them.
        fetch_timeout_s: for each small object that planning needs.
        fetch_concurrency: such objects at a time.
        commit_timeout_s: for the checks of an output's objects and its manifest.
        metadata_tries: how often a metadata write is tried whose store does not answer.
        retry_s: before each further try.
    """

    grace_s: float = 3600.0
    fetch_timeout_s: float = 60.0
    fetch_concurrency: int = 8
    commit_timeout_s: float = 300.0
    metadata_tries: int = 4
    retry_s: float = 2.0


class Replacing:
    """Steps of a commit, each of which may find that the output must not be committed."""

    def __init__(
        self, metadata: PatientMetadata, storage: OutputStorage, *, clock: Clock, settings: LeaderSettings
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._clock = clock
        self._settings = settings

    async def replace(self, opened: OpenOutput, manifest: SegmentManifest) -> WriteOutcome:
        """Take every step of a commit. If cancelled, it may have happened: readers see the inputs or the output."""
        problem = (
            output_problem(opened.row, opened.inputs, manifest)
            or await self._leadership_problem(opened.round)
            or await self.inputs_problem(opened.round, opened.output.group)
            or await self._store_manifest(opened, manifest)
        )
        return WriteOutcome(problem) if problem is not None else await self._commit_rows(opened, manifest)

    async def write(self, round_: PartitionRound, operation: Callable[[], Awaitable[None]]) -> WriteOutcome:
        """Write metadata of a partition; a fenced write marks the partition as lost in ``round_``."""
        return _noted(round_, await self._metadata.write(operation))

    async def inputs_problem(self, round_: PartitionRound, group: int) -> str | None:
        """Return why the inputs of a group can no longer be replaced; None when they can."""
        view = await self._metadata.view(round_.work.partition)
        if isinstance(view, WriteOutcome):
            return _noted(round_, view).problem
        return inputs_problem(view, round_.work.group_inputs(group), planned_log_start=round_.log_start_offset)

    async def _leadership_problem(self, round_: PartitionRound) -> str | None:
        """Have the metadata store prove the leadership of the partition; return the problem, or None.

        The proof is needed before a manifest is stored: no store fences a manifest, and a rebuild trusts it.
        """
        partition = round_.work.partition
        return (await self.write(round_, lambda: self._metadata.manager.prove_leadership(partition))).problem

    async def _store_manifest(self, opened: OpenOutput, manifest: SegmentManifest) -> str | None:
        completed = manifest.completed(opened.row)
        replaced = [metadata.segment for metadata in opened.inputs]
        try:
            async with asyncio.timeout(self._settings.commit_timeout_s):
                await self._storage.commit_log_segment(completed, manifest, replaced)
        except TimeoutError:
            return f"its objects could not be checked within {self._settings.commit_timeout_s:g} s"
        except RemoteStorageError as error:
            return str(error)
        return None

    async def _commit_rows(self, opened: OpenOutput, manifest: SegmentManifest) -> WriteOutcome:
        now_ms = self._clock.now_ms()
        finished = finished_output(opened.row, manifest, now_ms=now_ms)
        soft_delete = SoftDelete.replaced(delete_after_ms=now_ms + round(self._settings.grace_s * 1000))
        compacted_to = opened.round.compacted_to_with(opened.output.group)
        return await self.write(
            opened.round,
            lambda: self._metadata.manager.replace_segments(
                finished,
                opened.inputs,
                soft_delete=soft_delete,
                compacted_to=compacted_to,
                planned_log_start=opened.round.log_start_offset,
            ),
        )


def _noted(round_: PartitionRound, outcome: WriteOutcome) -> WriteOutcome:
    if outcome.is_lost:
        round_.lost = outcome.problem
    return outcome
