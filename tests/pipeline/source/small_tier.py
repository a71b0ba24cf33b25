"""Tier of a few records, filled by the real copy in this process."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter
from tests.pipeline.source.queries import Queries
from tests.scenarios.installation import Installation
from tierd.app import Deployment, copy_once
from tierd.config import load_config
from tierd.log import NewRecord, encode_batch

SECOND_MS = 1_000


class SmallTier:
    """Log dir and its tier. Record n of a partition has value ``b"v<n>"`` and by default the time of n seconds."""

    def __init__(self, root: Path) -> None:
        self.log_dir = LogDirWriter(root / "kafka")
        self.installation = Installation(root / "tierd", [self.log_dir.path])
        self._partitions: dict[str, PartitionWriter] = {}
        self._topic_ids: dict[str, UUID] = {}

    def partition(self, topic: str = "orders", number: int = 0) -> PartitionWriter:
        """Return the writer of a partition, made on its first use."""
        name = f"{topic}-{number}"
        if name not in self._partitions:
            topic_id = self._topic_ids.setdefault(topic, uuid4())
            self._partitions[name] = self.log_dir.add_partition(topic, number, topic_id=topic_id)
        return self._partitions[name]

    def append(
        self, count: int, topic: str = "orders", number: int = 0, *, times_s: Sequence[int] | None = None
    ) -> None:
        """Append ``count`` records in batches of 5."""
        writer = self.partition(topic, number)
        begin, end = writer.end_offset, writer.end_offset + count
        while writer.end_offset < end:
            offsets = range(writer.end_offset, min(writer.end_offset + 5, end))
            times = [times_s[offset - begin] if times_s else offset for offset in offsets]
            batch = [
                NewRecord(b"k%d" % (offset % 3), b"v%d" % offset, second * SECOND_MS, (("n", b"%d" % offset),))
                for offset, second in zip(offsets, times, strict=True)
            ]
            writer.append_batch(encode_batch(batch, leader_epoch=0), len(batch))

    def roll(self, topic: str = "orders", number: int = 0) -> None:
        """Close the active segment."""
        self.partition(topic, number).roll()

    def copy(self) -> None:
        """Copy the rolled segments, after the checkpoints were written anew."""
        self.log_dir.write_checkpoints()
        self.copy_as_it_is()

    def copy_as_it_is(self) -> None:
        """Copy the rolled segments."""
        config_file = self.installation.config_file
        outcomes = asyncio.run(copy_once(Deployment(load_config(config_file, {}), config_file), None))
        assert all(outcome.error is None for outcome in outcomes), outcomes

    def add_segment(self, count: int = 20, topic: str = "orders", number: int = 0) -> None:
        """Append, roll and copy."""
        self.append(count, topic, number)
        self.roll(topic, number)
        self.copy()

    def recreate(self, topic: str = "orders", number: int = 0) -> None:
        """Delete a partition with its topic, and create the topic again under another id."""
        shutil.rmtree(self._partitions.pop(f"{topic}-{number}").path)
        del self._topic_ids[topic]
        self.partition(topic, number)

    def expire(self) -> None:
        """Delete all segments of the tier, as retention does: the records are of 1970."""
        self.installation.configure({"topics": {"defaults": {"retention": "1h"}}, "expire": {"grace": "0s"}})
        expired = self.installation.tierd("expire", "--once")
        assert expired.exit_code == 0, expired.output

    def queries(self, **options: str) -> Queries:
        """Return queries of all topics of the tier."""
        return Queries(self.installation.config_file, **{"subscribePattern": ".*", **options})
