"""Settings of the leader of a run, and its view of the storage of outputs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from tierd.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata
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
