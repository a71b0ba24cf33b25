"""LocalHistory: a stored log compared with the committed part of the local log, as far as both have its offsets."""

from collections.abc import Sequence

import structlog

from tierd.errors import LogError
from tierd.log import RecordBatch, compare_with_local
from tierd.model import RemoteLogSegmentMetadata
from tierd.tiering.reading.tiered_log import TieredLog

log = structlog.get_logger()


class LocalHistory:
    """Comparison of one segment with the local log. Offsets that the local log does not have are not compared.

    Attributes:
        problem: the first difference, None while there is none.
    """

    def __init__(self, metadata: RemoteLogSegmentMetadata, tiered: TieredLog | None) -> None:
        """Compare ``metadata`` with the local log of ``tiered``; None where this host has none."""
        self.problem: str | None = None
        self._scan = None if tiered is None else tiered.scan
        own_end = 0 if tiered is None else tiered.readable_end(metadata, metadata.first_readable_offset)
        committed = 0 if tiered is None else tiered.high_watermark or 0
        # What a replica has above its high watermark may still be truncated; another branch is no difference.
        self._end = min(own_end, committed)

    def take(self, batches: Sequence[RecordBatch]) -> None:
        """Compare the next batches. Blocking; a local log that cannot be read is left to ``tierd inspect``."""
        own = [batch for batch in batches if batch.last_offset < self._end]
        if self._scan is None or self.problem is not None or not own:
            return
        if not self._scan.segments or own[-1].last_offset < self._scan.segments[0].base_offset:
            return
        try:
            found = compare_with_local(self._scan, own)
        except LogError as error:
            log.warning("log_not_compared", directory=str(self._scan.directory.path), problem=str(error))
            return
        if found.differs_at is not None:
            self.problem = f"the local log has another record at offset {found.differs_at}: it lost this one"
