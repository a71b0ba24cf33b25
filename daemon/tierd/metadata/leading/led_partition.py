"""LedPartition: the manager's state of one partition that this broker leads."""

import asyncio

from tierd.errors import FencedError
from tierd.metadata.rows import Claim
from tierd.metadata.views import PartitionView
from tierd.model import TopicIdPartition


class LedPartition:
    """Live view of a led partition, and how far the view can be trusted. All but the lock changes only under the lock.

    Attributes:
        partition: the led partition.
        claim: under which leader epoch and session we write, or are about to.
        held: the store granted ``claim`` once. Lost to another session of the same epoch, it is not taken back.
        revision: the highest one that we tried to write; a store that lost writes is not given them again.
        view: the live view, replaced in one assignment; None until loaded, and after a fence.
        dirty: why the view may be behind the store; None while it is not.
        fenced: the claim that took the partition from us; None while there is none.
        lock: gives operations on the partition their order.
    """

    def __init__(self, partition: TopicIdPartition, claim: Claim) -> None:
        self.partition = partition
        self.claim = claim
        self.held = False
        self.revision = 0
        self.view: PartitionView | None = None
        self.dirty: BaseException | None = None
        self.fenced: FencedError | None = None
        self.lock = asyncio.Lock()

    def is_ready(self) -> bool:
        """Return True if reads and writes may go ahead."""
        return self.view is not None and self.held and self.dirty is None and self.fenced is None

    def reclaim_as(self, claim: Claim) -> None:
        """Begin under a later leader epoch; the view is kept, but not used before the store has granted the claim."""
        self.claim, self.held, self.fenced = claim, False, None

    def fence(self, error: FencedError) -> None:
        """Fence the partition until leadership changes or is announced again."""
        # Not the error itself: its traceback holds whatever the failed call had at hand, and this may last for weeks.
        self.fenced = FencedError(str(error), remedy=error.remedy)
        self.view, self.dirty = None, None
