"""SegmentWrites: the segments that this process writes into the tier now, and those that it abandoned."""

import contextlib
from collections.abc import Callable, Iterator
from uuid import UUID

from tierd.model import RemoteLogSegmentMetadata, random_id


class SegmentWrites:
    """Ids of the segments that this process writes now. Sweeps and expiration leave these segments alone.

    Attributes:
        ids: the ids, live. The pipeline adds and removes the ids of its own outputs.
    """

    def __init__(
        self,
        *,
        on_abandoned: Callable[[RemoteLogSegmentMetadata], None] = lambda _: None,
        new_id: Callable[[], UUID] = random_id,
    ) -> None:
        """Begin with no write.

        Args:
            on_abandoned: takes over a segment that was begun and abandoned.
            new_id: makes fresh segment ids.
        """
        self.ids: set[UUID] = set()
        self._on_abandoned = on_abandoned
        self._new_id = new_id

    @contextlib.contextmanager
    def fresh_id(self) -> Iterator[UUID]:
        """Give a fresh id that counts as being written while the block lasts.

        The id is registered before its row exists. Otherwise the sweep could take the row for a dangling one.
        """
        segment_id = self._new_id()
        self.ids.add(segment_id)
        try:
            yield segment_id
        finally:
            self.ids.discard(segment_id)

    def abandon(self, started: RemoteLogSegmentMetadata) -> None:
        """Hand over a segment that was begun and abandoned: its objects may arrive later."""
        self._on_abandoned(started)
