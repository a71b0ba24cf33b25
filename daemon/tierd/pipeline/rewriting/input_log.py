"""InputLog: one segment that is rewritten, as its bytes come in."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tierd.errors import CorruptRecordError
from tierd.pipeline.rewriting.stretch import Stretch, iter_stretches


@dataclass(slots=True, kw_only=True)
class InputLog:
    """One input segment, read once.

    Attributes:
        name: for errors.
        start_offset: no batch begins below it.
        end_offset: no batch ends above it; inclusive.
        pieces: the consecutive bytes of its ``.log``, cut anywhere; below 2 GiB each.
    """

    name: str
    start_offset: int
    end_offset: int
    pieces: Iterable[bytes | memoryview] = field(repr=False)

    def stretches(self) -> Iterator[Stretch]:
        """The batches, in order; they refer to their piece, and are of use until the next ones are asked for.

        Raises:
            CorruptRecordError: as ``iter_stretches``, or a batch whose offsets do not belong there.
        """
        expected = self.start_offset
        for stretch in iter_stretches(self.pieces, name=self.name):
            for batch, _, _ in stretch.parts:
                if batch.base_offset < expected or batch.last_offset > self.end_offset:
                    offsets = f"offsets {batch.base_offset} to {batch.last_offset}"
                    problem = f"{offsets} where {expected} to {self.end_offset} are possible"
                    raise CorruptRecordError(self.name, batch.position, problem)
                expected = batch.last_offset + 1
            yield stretch
