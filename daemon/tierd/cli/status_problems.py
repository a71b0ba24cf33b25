"""Parts of the status that need a person, in the words of ``tierd status`` and ``tierd doctor``. Pure."""

from collections.abc import Iterable
from typing import Final

from tierd.serve import (
    CatalogueSummary,
    ControlSummary,
    DescriptorsSummary,
    HoldSummary,
    OwnLogsSummary,
    PartitionSummary,
)

_MAX_UNCLEANABLE: Final = 20


def unheld_lines(hold: HoldSummary) -> list[str]:
    """Return a line when segments wait to be copied that the broker may delete before."""
    if not hold.unheld_segments:
        return []
    return [f"{hold.unheld_segments} segments that wait to be copied are not held: {hold.unheld_reason}"]


def grace_line(partitions: Iterable[PartitionSummary]) -> str:
    """Return the number of expired segments that can be taken back in a line; empty without any."""
    count = sum(partition.in_grace_segments for partition in partitions)
    return f"grace: {count} expired segments are still in the tier; tierd undelete takes them back" if count else ""


def catalogue_lines(catalogue: CatalogueSummary) -> list[str]:
    """Return a line for each part of the catalogue that is missing now."""
    return [f"catalogue for restores, {part}: {why}" for part, why in sorted(catalogue.problems.items())]


def control_lines(control: ControlSummary) -> list[str]:
    """Return a line when the MQTT broker is lost, and one when it refuses messages; none where all is well."""
    if not control.enabled:
        return []
    lines = [] if control.is_connected else [f"control plane: {control.problem or 'not connected yet'}"]
    if control.denied:
        problem = f"control plane: the MQTT broker denied {control.denied} messages"
        lines.append(f"{problem}; compare its access list with docs/control-plane.md")
    return lines


def descriptor_lines(descriptors: DescriptorsSummary | None) -> list[str]:
    """Return a line when descriptors run short, and what to do; none for a daemon that does not say."""
    if descriptors is None or not descriptors.near_limit:
        return []
    return [f"{descriptors.open} of {descriptors.limit} descriptors are open: raise LimitNOFILE of the unit"]


def uncleanable_lines(own_logs: OwnLogsSummary) -> list[str]:
    """Return a line for each own log that is not cleaned until a person has repaired it, and what to do."""
    logs = list(own_logs.uncleanable.items())
    lines = [f"{log} is not cleaned: {why}; run tierd inspect" for log, why in logs[:_MAX_UNCLEANABLE]]
    left_out = len(logs) - _MAX_UNCLEANABLE
    return [*lines, f"{left_out} more logs are not cleaned: tierd status --json"] if left_out > 0 else lines
