"""Deep check of a segment by an executor: all bytes of its log, its batches, its manifest and its indexes."""

from collections.abc import Iterator

from tierd.errors import TierError
from tierd.log import check_index
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.pipeline.access import OpenTier
from tierd.pipeline.jobs.run_context import RunContext
from tierd.pipeline.jobs.scanning import AuditNote
from tierd.pipeline.jobs.task_layout import InputSplit
from tierd.pipeline.rewriting import InputLog


def audit_split(context: RunContext, split: InputSplit) -> Iterator[AuditNote]:
    """Check the inputs of a split; yield a note for each, also for one that could not be read."""
    with context.access.open() as tier:
        for place in split.inputs:
            metadata = context.work(place).inputs[place.segment]
            try:
                yield AuditNote(place, _problem(tier, metadata))
            except (TierError, OSError) as error:
                yield AuditNote(place, f"{metadata.segment}: {error}")


def _problem(tier: OpenTier, metadata: RemoteLogSegmentMetadata) -> str | None:
    """Return the first problem of a segment, or None. Reads compare chunks and indexes with their checksums."""
    manifest = tier.manifest(metadata)
    log = InputLog(
        name=str(metadata.segment),
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        pieces=tier.pieces(metadata),
    )
    batches = log.count_batches()
    if batches != manifest.batch_count:
        return f"{metadata.segment}: {batches} batches, the manifest says {manifest.batch_count}"
    for kind in IndexType:
        if manifest.index(kind) is not None:
            check_index(
                kind,
                tier.read_index(metadata, kind),
                base_offset=metadata.start_offset,
                log_bytes=metadata.size_bytes,
                name=f"{kind.value} index",
            )
        elif kind is not IndexType.TRANSACTION:
            return f"{metadata.segment}: there is no {kind.value} index"
    return None
