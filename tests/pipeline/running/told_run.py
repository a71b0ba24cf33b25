"""ToldRun: the work of a run that ends when and as a test demands."""

import asyncio
from collections.abc import Sequence

from tierd.model import TopicPartition
from tierd.pipeline import RunProgress
from tierd.pipeline.committing import RunTally


class ToldRun:
    """Run over one partition, with one group replaced at a successful end, or before any end.

    Args:
        replaces_first: the group is replaced before the end, of any kind.
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
