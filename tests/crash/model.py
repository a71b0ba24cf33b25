"""LogModel: what a log must hold, may hold, and must not hold, whatever the power did."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.crash.oracle import Aborted, Batch, ProducerView, Segment, replay


@dataclass(slots=True)
class LogModel:
    """One log as its writer sees it, and what of that would survive a power cut.

    Attributes:
        batches: in the log, in order.
        deleted: what retention took away from its front; transactions may begin there.
        flushed_end: what lies below was acknowledged as flushed.
        ghosts: batches that were in the log, or were about to be, by base offset: what was removed and not synced may
            come back.
        log_starts: every value that the log start had, so that an old checkpoint is recognised.
        highest_log_start: what lies below it may be forgotten, even when the records themselves come back.
        removing_from: while a truncation runs, where it cuts; None otherwise.
        removing_below: while retention runs, what it cannot reach any more; None otherwise.
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
        """Batches that may be in the log from now on, and are not promised."""
        for batch in batches:
            self.ghosts.setdefault(batch.base_offset, set()).add(batch.data)

    def appended(self, batch: Batch) -> None:
        """A batch that the log says it has."""
        self.batches.append(batch)
        self.log_end_offset = batch.last_offset + 1

    def flushed(self, end_offset: int) -> None:
        """The log says that everything below is on stable storage."""
        self.flushed_end = max(self.flushed_end, end_offset)

    def truncated(self, offset: int, *, log_start_offset: int) -> None:
        """The log says that it ends at ``offset``; a batch that holds it is gone."""
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.deleted = [batch for batch in self.deleted if batch.last_offset < offset]
        self.log_end_offset = offset
        self.flushed_end = min(self.flushed_end, offset)
        self.log_start_moved(log_start_offset)
        self.removing_from = None

    def log_start_moved(self, offset: int) -> None:
        """The log says that it begins at ``offset``."""
        self.log_start_offset = offset
        self.will_move_log_start(offset)

    def will_move_log_start(self, offset: int) -> None:
        """The log start may be there from now on."""
        self.log_starts.add(offset)
        self.highest_log_start = max(self.highest_log_start, offset)

    def retained(self, first_base_offset: int, *, log_start_offset: int) -> None:
        """Retention took away what lies below the first segment."""
        kept = [batch for batch in self.batches if batch.base_offset >= first_base_offset]
        self.deleted += self.batches[: len(self.batches) - len(kept)]
        self.batches = kept
        self.log_start_moved(log_start_offset)
        self.removing_below = None

    def required(self, *, checkpointed_log_start: int) -> Iterator[Batch]:
        """What has to be there after a power cut: acknowledged as flushed, and not removed since."""
        for batch in self.batches:
            if batch.last_offset >= self.flushed_end or batch.last_offset < checkpointed_log_start:
                continue
            if self.removing_from is not None and batch.last_offset >= self.removing_from:
                continue
            if self.removing_below is not None and batch.last_offset < self.removing_below:
                continue
            yield batch

    def check_survivors(self, segments: Sequence[Segment], *, checkpointed_log_start: int) -> None:
        """After a power cut and a recovery: nothing lost, nothing changed, nothing invented, nothing twice."""
        survivors = [batch for segment in segments for batch in segment.batches]
        self._check_known(segments)
        found = {batch.base_offset: batch.data for batch in survivors}
        for batch in self.required(checkpointed_log_start=checkpointed_log_start):
            assert found.get(batch.base_offset) == batch.data, (
                f"batch {batch.base_offset} to {batch.last_offset} was flushed (up to {self.flushed_end}) and is "
                f"{'changed' if batch.base_offset in found else 'lost'}; the log has {sorted(found)}"
            )

    def check_exact(self, segments: Sequence[Segment]) -> None:
        """As long as nobody lost power the log is what it says."""
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
                    f"nobody appended the batch at {batch.base_offset} that is in segment {segment.base_offset}"
                )

    def adopt(
        self, segments: Sequence[Segment], *, log_start_offset: int, log_end_offset: int, is_durable: bool
    ) -> None:
        """Take what a recovery found for the truth from now on; what it did not find may still come back.

        After a power cut it came from stable storage, and stays there; after less it may be in the page cache only.
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
        """What the batches say of producers and aborted transactions."""
        return replay([*self.deleted, *self.batches])
