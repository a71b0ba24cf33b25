"""Facts that a follower has heard of its leader: high watermark, log start, and when the log had all of it. Pure.

**Bounds** (push-replication 2.11). The order within a change is: records, high watermark, log start. A log start above
the high watermark is illegal.

**Absence** (design 13, trap 7). The leader removes a tombstone ``delete.retention.ms`` after its first cleaning. A
standby that had every record at time T, and reads on after T + ``delete.retention.ms``, may never see that tombstone,
and would keep the deleted key for ever. Such a copy is built again from the leader's log start. Times are monotonic
seconds.
"""

from dataclasses import dataclass, replace

from tierd.replication.follower.rules.log_facts import FollowerLogFacts, LogChange


@dataclass(slots=True)
class KnownBounds:
    """Highest values of one session, or the last ones of the answers to fetches; -1 for an unknown one.

    The log may be behind them: a high watermark above the log end counts as soon as the records are there.
    """

    high_watermark: int = -1
    log_start_offset: int = -1

    def begin_session(self) -> None:
        """Forget the values of the time before: the first high watermark of a session counts even if it is lower."""
        self.high_watermark = self.log_start_offset = -1

    def on_pushed(self, *, high_watermark: int, log_start_offset: int) -> None:
        """Take note of an entry in a session; lower values do not count, and -1 is no value."""
        self.high_watermark = max(self.high_watermark, high_watermark)
        self.log_start_offset = max(self.log_start_offset, log_start_offset)

    def on_fetched(self, *, high_watermark: int, log_start_offset: int) -> None:
        """Take note of the answer to a fetch, whose high watermark counts even if it is lower; -1 is no value."""
        if high_watermark >= 0:
            self.high_watermark = high_watermark
        self.log_start_offset = max(self.log_start_offset, log_start_offset)

    def complete(self, change: LogChange, log: FollowerLogFacts) -> LogChange:
        """Return ``change`` with the high watermark and the log start that the log can have after it."""
        end_offset = change.end_offset
        begins_again = change.restart_at is not None
        start = log.log_start_offset if change.restart_at is None else change.restart_at
        watermark = start if begins_again else min(log.high_watermark, end_offset)
        if self.high_watermark >= 0:
            watermark = max(start, min(self.high_watermark, end_offset))
        new_start = min(self.log_start_offset, watermark)
        return replace(
            change,
            high_watermark=watermark if begins_again or watermark != log.high_watermark else None,
            log_start_offset=new_start if new_start > start else None,
        )


@dataclass(slots=True)
class SyncTracker:
    """Time at which a log last had every record that its leader had.

    Attributes:
        synced_at_s: that time; None when it is not known.
        is_rebuilding: the log was begun again, and has not reached its leader's end since then.
    """

    synced_at_s: float | None = None
    is_rebuilding: bool = False
    _target: tuple[int, float] | None = None  # an end offset of the leader, and when the leader had it

    def on_leader_end(self, leader_end: int, *, log_end: int, now_s: float) -> None:
        """Take note of the leader's log end offset, as an answer of now says it."""
        if log_end >= leader_end:
            self._reached(now_s)
            self._target = None
            return
        if self._target is not None and log_end >= self._target[0]:
            self._reached(self._target[1])
            self._target = None
        if self._target is None:
            self._target = leader_end, now_s

    def on_pushed(self, now_s: float) -> None:
        """Take note of an entry of the leader in a session: the leader sends what it appends at once."""
        self._reached(now_s)

    def begin_rebuild(self, now_s: float) -> None:
        """Take note that the log begins again, so that no record of before is left."""
        self.synced_at_s, self.is_rebuilding, self._target = now_s, True, None

    def forget(self) -> None:
        """Take note that nothing is known about the log any more."""
        self.synced_at_s, self.is_rebuilding, self._target = None, False, None

    def was_away(self, longest_s: float, *, now_s: float) -> bool:
        """Return True if the log lacked records of its leader for longer than ``longest_s``, or for an unknown time."""
        if self.is_rebuilding:
            return False  # it would begin again for ever if reading all of the log takes longer
        return self.synced_at_s is None or now_s - self.synced_at_s > longest_s

    def _reached(self, at_s: float) -> None:
        self.synced_at_s = at_s if self.synced_at_s is None else max(self.synced_at_s, at_s)
        self.is_rebuilding = False
