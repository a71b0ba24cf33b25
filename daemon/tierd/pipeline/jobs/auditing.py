"""The deep check of a segment by an executor: every byte of it, as its manifest, its batches and a reader see them."""

from collections.abc import Iterator

from tierd.errors import LogError, RemoteIntegrityError, TierError
from tierd.log import OffsetIndex, TimeIndex, TransactionIndex, parse_lineage, parse_producer_snapshot
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.pipeline.access import OpenTier
from tierd.pipeline.jobs.layout import Split
from tierd.pipeline.jobs.run_context import RunContext
from tierd.pipeline.jobs.scanning import AuditNote
from tierd.pipeline.rewriting import InputLog


def audit_split(context: RunContext, split: Split) -> Iterator[AuditNote]:
    """Check the inputs of a split; what is wrong, or could not be looked at, is noted."""
    with context.access.open() as tier:
        for place in split.inputs:
            metadata = context.work(place).inputs[place.segment]
            try:
                yield AuditNote(place, _problem(tier, metadata))
            except (TierError, OSError) as error:
                yield AuditNote(place, f"{metadata.segment}: {error}")


def _problem(tier: OpenTier, metadata: RemoteLogSegmentMetadata) -> str | None:
    """The first thing that is wrong; chunks and indexes are held against their checksums as they are read."""
    manifest = tier.manifest(metadata)
    log = InputLog(
        name=str(metadata.segment),
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        pieces=tier.pieces(metadata),
    )
    batches = sum(len(stretch.parts) for stretch in log.stretches())
    if batches != manifest.batch_count:
        return f"{metadata.segment}: {batches} batches, the manifest says {manifest.batch_count}"
    for kind in IndexType:
        if manifest.index(kind) is not None:
            _parse(metadata, kind, tier.read_index(metadata, kind))
        elif kind is not IndexType.TRANSACTION:
            return f"{metadata.segment}: there is no {kind.value} index"
    return None


def _parse(metadata: RemoteLogSegmentMetadata, kind: IndexType, content: bytes) -> None:
    name = f"{metadata.segment} {kind.value}"
    try:
        match kind:
            case IndexType.OFFSET:
                index = OffsetIndex.from_bytes(content, metadata.start_offset, name)
                if len(index) and index[len(index) - 1].position >= metadata.size_bytes:
                    raise RemoteIntegrityError(f"{name}: points behind the end of the log")
            case IndexType.TIMESTAMP:
                TimeIndex.from_bytes(content, metadata.start_offset, name)
            case IndexType.TRANSACTION:
                TransactionIndex.from_bytes(content, metadata.start_offset, name)
            case IndexType.PRODUCER_SNAPSHOT:
                parse_producer_snapshot(content, name)
            case IndexType.LEADER_EPOCH:
                parse_lineage(content, name=name)
    except LogError as error:
        raise RemoteIntegrityError(str(error), remedy="run tierd verify --deep") from error
