"""DeletionRequests: tells records deleted on request from a log start that the broker took over from another leader."""

from typing import Final

from tierd.tiering.local.broker_state import BrokerOffsets

LOOK_S: Final = 60.0  # Kafka: log.flush.start.offset.checkpoint.interval.ms


class DeletionRequests:
    """One leadership's judgement of a log start that lies inside a local segment.

    A follower takes over its leader's log start, which that leader's retention put at a base of *its* segments: here
    the same offset lies inside one, and looks like a DeleteRecords request (Kafka: ReplicaFetcherThread,
    LeaderOffsetIncremented). To believe it would expire the whole tier below. So only what rises after the broker
    wrote its checkpoint under this leadership is a request; whoever leads in epoch 0 has followed nobody. A request
    that came before is not obeyed: a log start that is too low hides nothing.
    """

    def __init__(self, leader_epoch: int) -> None:
        self._is_settled = leader_epoch == 0
        self._first: object = None  # which checkpoint was there when the leadership was new
        self._looked = False
        self._taken_over = -1

    def look(self, offsets: BrokerOffsets) -> None:
        """Take note of what the broker says; every pass does, before it asks."""
        if self._is_settled:
            return
        if offsets.log_start_offset is not None:
            self._taken_over = max(self._taken_over, offsets.log_start_offset)
        self._is_settled = offsets.starts_written is None or (self._looked and offsets.starts_written != self._first)
        if not self._looked:
            self._looked, self._first = True, offsets.starts_written

    def is_request(self, inside: int) -> bool:
        """Whether a log start inside a segment is there because somebody deleted the records before it."""
        return self._is_settled and inside > self._taken_over

    def look_again_s(self) -> float | None:
        """Seconds until the checkpoint was surely written anew; None once that was seen."""
        return None if self._is_settled else LOOK_S
