"""LogModel: the records that a log must, may, and must not have after any loss of power."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.crash.oracle import Aborted, Batch, ProducerView, Segment, replay


@dataclass(slots=True)
class LogModel:
    """One log as its writer sees it, and the part of it that would survive a power cut.

    Attributes:
        batches: in the log, in order.
        deleted: batches that retention deleted from its front; transactions may begin there.
        flushed_end: offset below which every batch was acknowledged as flushed.
        ghosts: batches that were in the log, or were about to be, by base offset: a removed batch that was not synced
            may come back.
        log_starts: every value that the log start had, so that an old checkpoint is recognised.
        highest_log_start: offset below which facts may be forgotten, even when the records themselves come back.
        removing_from: offset of a running truncation; None otherwise.
        removing_below: offset below which running retention may delete; None otherwise.
    """

    batches: list[Batch] = field(default_factory=list)
    deleted: list[Batch] = field(default_factory=list)
    flushed_end: int = 0
    log_start_offset: int = 0
    log_end_offset: int = 0
    ghosts: dict[int, set[bytes]] = field(default_factory=dict)
    log_starts: set[int] = field(default_factory=lambda: {0})
    highest_log_start: int = 0
    removing_from: int | None = None
    removing_below: int | None = None

    def will_append(self, batches: Iterable[Batch]) -> None:
        """Note batches that may be in the log from now on, without a promise."""
        for batch in batches:
            self.ghosts.setdefault(batch.base_offset, set()).add(batch.data)

    def appended(self, batch: Batch) -> None:
        """Note a batch that the log has reported as appended."""
        self.batches.append(batch)
        self.log_end_offset = batch.last_offset + 1

    def flushed(self, end_offset: int) -> None:
        """Note that the log has reported all batches below as flushed."""
        self.flushed_end = max(self.flushed_end, end_offset)

    def truncated(self, offset: int, *, log_start_offset: int) -> None:
        """Note that the log ends at ``offset``; a batch across this offset is removed."""
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.deleted = [batch for batch in self.deleted if batch.last_offset < offset]
        self.log_end_offset = offset
        self.flushed_end = min(self.flushed_end, offset)
        self.log_start_moved(log_start_offset)
        self.removing_from = None

    def log_start_moved(self, offset: int) -> None:
        """Note that the log begins at ``offset``."""
        self.log_start_offset = offset
        self.will_move_log_start(offset)

    def will_move_log_start(self, offset: int) -> None:
        """Note that the log start may be at ``offset`` from now on."""
        self.log_starts.add(offset)
        self.highest_log_start = max(self.highest_log_start, offset)

    def retained(self, first_base_offset: int, *, log_start_offset: int) -> None:
        """Note that retention removed the batches below the first segment."""
        kept = [batch for batch in self.batches if batch.base_offset >= first_base_offset]
        self.deleted += self.batches[: len(self.batches) - len(kept)]
        self.batches = kept
        self.log_start_moved(log_start_offset)
        self.removing_below = None

    def required(self, *, checkpointed_log_start: int) -> Iterator[Batch]:
        """Yield the batches that must survive a power cut: flushed, and not removed since."""
        for batch in self.batches:
            if batch.last_offset >= self.flushed_end or batch.last_offset < checkpointed_log_start:
                continue
            if self.removing_from is not None and batch.last_offset >= self.removing_from:
                continue
            if self.removing_below is not None and batch.last_offset < self.removing_below:
                continue
            yield batch

    def check_survivors(self, segments: Sequence[Segment], *, checkpointed_log_start: int) -> None:
        """Check the batches after a power cut and a recovery: none is lost, changed, invented or repeated."""
        survivors = [batch for segment in segments for batch in segment.batches]
        self._check_known(segments)
        found = {batch.base_offset: batch.data for batch in survivors}
        for batch in self.required(checkpointed_log_start=checkpointed_log_start):
            assert found.get(batch.base_offset) == batch.data, (
                f"batch {batch.base_offset} to {batch.last_offset} was flushed (up to {self.flushed_end}) and is "
                f"{'changed' if batch.base_offset in found else 'lost'}; the log has {sorted(found)}"
            )

    def check_exact(self, segments: Sequence[Segment]) -> None:
        """Check that the files equal the model while no power was lost."""
        survivors = [batch.data for segment in segments for batch in segment.batches]
        assert survivors == [batch.data for batch in self.batches], "the files are not what was appended"

    def _check_known(self, segments: Sequence[Segment]) -> None:
        index = {batch.base_offset: at for at, batch in enumerate(self.batches)}
        last_offset = -1
        for segment in segments:
            assert not segment.torn_bytes, f"segment {segment.base_offset} has {segment.torn_bytes} torn bytes"
            previous: int | None = None
            for batch in segment.batches:
                assert batch.base_offset > last_offset, f"offset {batch.base_offset} after {last_offset}"
                last_offset = batch.last_offset
                at = index.get(batch.base_offset)
                if at is not None and self.batches[at].data == batch.data:
                    assert previous is None or at == previous + 1, (
                        f"segment {segment.base_offset}: {batch.base_offset} is there, a batch before it is not"
                    )
                    previous = at
                    continue
                previous = None
                assert batch.data in self.ghosts.get(batch.base_offset, ()), (
                    f"no call appended the batch at {batch.base_offset} that is in segment {segment.base_offset}"
                )

    def adopt(
        self, segments: Sequence[Segment], *, log_start_offset: int, log_end_offset: int, is_durable: bool
    ) -> None:
        """Take the batches of a recovery as the content from now on; batches that it did not find may still return.

        After a power cut the content is on stable storage; after less it may be in the page cache only.
        """
        survivors = [batch for segment in segments for batch in segment.batches]
        first = segments[0].base_offset
        kept = {batch.data for batch in survivors}
        self.will_append(batch for batch in self.batches if batch.data not in kept)
        lineage = [*self.deleted, *self.batches]
        self.deleted = [batch for batch in lineage if batch.last_offset < first and batch.data not in kept]
        self.batches = survivors
        self.log_end_offset = log_end_offset
        self.flushed_end = log_end_offset if is_durable else min(self.flushed_end, log_end_offset)
        self.log_start_moved(log_start_offset)
        self.removing_from = self.removing_below = None

    def replay(self) -> tuple[dict[int, ProducerView], list[Aborted]]:
        """Return the producers and aborted transactions that follow from the batches."""
        return replay([*self.deleted, *self.batches])
