"""CopyState: the state of a copy task, as a value."""

from dataclasses import dataclass
from enum import Enum

from tierd.tiering.copy_plan import CopiedThrough


class CopyPhase(Enum):
    """Phase of a copy task; the reason beside it says why."""

    LOADING = "loading"
    COPYING = "copying"
    WAITING = "waiting"
    IDLE = "idle"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class CopyState:
    """State of a copy task at one moment.

    Attributes:
        copied_through: the frontier; None until the metadata was loaded.
        high_watermark: the high watermark that the last pass saw; None when there was none.
        awaits_high_watermark: rolled segments are queued that only a higher high watermark releases.
        log_start_offset: the log start of the tier; None until the metadata was loaded.
    """

    phase: CopyPhase = CopyPhase.LOADING
    reason: str = ""
    copied_through: CopiedThrough | None = None
    high_watermark: int | None = None
    awaits_high_watermark: bool = False
    log_start_offset: int | None = None
