"""``tierd drill --history``: the results of past drills, which need nothing of a drill."""

from pathlib import Path

from tierd.restore import DrilledPartition, DrillHistory


def past_drills(state_dir: Path) -> list[DrilledPartition]:
    """Return the drilled partitions of the history, the oldest first. Blocking.

    Raises:
        StateDirError: the history cannot be read.
    """
    return DrillHistory(state_dir).read()
