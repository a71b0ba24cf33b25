"""Capacity: bounds what the tasks of this broker do at once, and how fast they copy."""

from dataclasses import dataclass

from tierd.clock import Clock
from tierd.config import CopySettings
from tierd.tiering.capacity.quota_gate import QuotaGate
from tierd.tiering.capacity.rate_quota import UNLIMITED, RateQuota
from tierd.tiering.capacity.slots import Slots
from tierd.tiering.recorder import TieringRecorder


@dataclass(frozen=True, slots=True)
class ManagerStatistics:
    """Use of the capacity at one moment.

    Attributes:
        copy_idle_ratio: part of the copy slots that are free, from 0 to 1.
        delete_idle_ratio: part of the slots for deletions that are free, from 0 to 1.
        copy_bytes_per_second: the rate of copies, as the copy quota sees it.
    """

    copy_idle_ratio: float
    delete_idle_ratio: float
    copy_bytes_per_second: float


class Capacity:
    """Slots for copies and for deletions, and the quota of copies with its gate."""

    def __init__(
        self, settings: CopySettings, *, copies: Slots, deletions: Slots, recorder: TieringRecorder, clock: Clock
    ) -> None:
        self.copies = copies
        self.deletions = deletions
        self.quota = RateQuota(
            settings.max_bytes_per_second or UNLIMITED,
            windows=settings.quota_windows,
            window_s=settings.quota_window_s,
        )
        self.gate = QuotaGate(self.quota, recorder=recorder, clock=clock)
        self._clock = clock

    def resize(self, *, copies: int, deletions: int) -> None:
        """Bound the segments copied and deleted at once from now on; segments under way continue."""
        self.copies.resize(copies)
        self.deletions.resize(deletions)

    def statistics(self) -> ManagerStatistics:
        """Return the use of the capacity at this moment."""
        return ManagerStatistics(
            copy_idle_ratio=self.copies.idle_ratio,
            delete_idle_ratio=self.deletions.idle_ratio,
            copy_bytes_per_second=self.quota.rate(self._clock.monotonic_s()),
        )
