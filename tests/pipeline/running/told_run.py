"""ToldRun: the work of a run that ends when it is told, as it is told."""

import asyncio
from collections.abc import Sequence

from tierd.model import TopicPartition
from tierd.pipeline import RunProgress
from tierd.pipeline.committing import RunTally


class ToldRun:
    """One partition, of which a group is replaced: in the end, if that is a good one, or before it.

    Args:
        replaces_first: whatever the end is, it has done something by then.
    """

    def __init__(self, *, replaces_first: bool = False) -> None:
        self._replaces_first = replaces_first
        self.begun: list[Sequence[TopicPartition] | None] = []
        self.ends: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def __call__(self, progress: RunProgress, names: Sequence[TopicPartition] | None) -> None:
        self.begun.append(names)
        progress.enter("rewriting", done=1, total=2)
        done = RunTally(partitions=1, groups_replaced=1)
        progress.tally = done if self._replaces_first else RunTally(partitions=1)
        error = await self.ends.get()
        if error is not None:
            raise error
        progress.tally = done
