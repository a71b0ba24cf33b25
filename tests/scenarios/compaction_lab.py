"""Log dir of a few keys, an installation that compacts it, and the invariants of its tier after any faults."""

import base64
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter
from tests.scenarios.installation import Daemon, Installation, Settings
from tests.scenarios.warm_tierd import WarmTierd
from tests.tiering.setups import delete_segment
from tierd.log import NewRecord, encode_batch
from tierd.pipeline import RunHistory, RunReport

SEGMENT_RECORDS = 10
KEYS = 7
SETTINGS: Settings = {
    "topics": {"defaults": {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0, "segment_bytes": 1024}},
    "expire": {"interval": "300ms", "grace": "0s"},
    "pipeline": {
        "driver_memory": "512MiB",
        "audit_bytes": 0,
        "nice": 0,
        "io_class": "none",
    },
}


class CompactionLab:
    """Topics with keys in turn: record ``n`` has the key ``n`` modulo ``KEYS``, and its number as value.

    Attributes:
        store_dir: folder of the tier.
        tierd: the installation.
        log_dir: log dir of the broker, in which only the last segment of each partition stays.
    """

    def __init__(self, root: Path, warm: WarmTierd, *, topics: Sequence[str] = ("orders",)) -> None:
        self._root = root
        self.store_dir = root / "store"
        self._warm = warm
        self.log_dir = LogDirWriter(root / "kafka")
        self._writers: dict[str, PartitionWriter] = {name: self.log_dir.add_partition(name) for name in topics}
        self.log_dir.write_checkpoints()
        self.tierd = self.installation("tierd")

    def installation(self, name: str, **settings: Any) -> Installation:  # noqa: ANN401 - any value of YAML
        """Return another tierd over the same log dir and the same store."""
        store = {"backend": "filesystem", "filesystem": {"path": str(self.store_dir)}}
        made = Installation(self._root / name, [self.log_dir.path], remote=store, settings=SETTINGS, warm=self._warm)
        made.configure(settings)
        return made

    def fill(self, topic: str, *, segments: int, keys: int = KEYS) -> None:
        """Append rolled segments."""
        writer = self._writers[topic]
        for _ in range(segments):
            numbers = range(writer.end_offset, writer.end_offset + SEGMENT_RECORDS)
            records = [NewRecord(b"%d" % (n % keys), b"value %d" % n, 1_700_000_000_000 + n) for n in numbers]
            writer.append_batch(encode_batch(records), len(records))
            writer.roll()
        self.log_dir.write_checkpoints()

    def let_local_go(self, daemon: Daemon) -> None:
        """Have all rolled segments copied, and delete them as retention of a broker does."""
        daemon.wait_copied({f"{name}-0": writer.end_offset - 1 for name, writer in self._writers.items()})
        for writer in self._writers.values():
            bases = sorted(int(log.stem) for log in writer.path.glob("*.log"))
            for base, _ in pairwise(bases):
                delete_segment(writer.path, base)

    def latest(self, topic: str) -> dict[str, str]:
        """Return the latest value of every key."""
        return {str(n % KEYS): f"value {n}" for n in range(self._writers[topic].end_offset)}

    def read(self, topic: str) -> list[tuple[str, str]]:
        """Return keys and values, as ``tierd cat`` reads them."""
        return [(_decoded(r["key"]), _decoded(r["value"])) for r in self.tierd.cat(f"{topic}-0")]

    def runs(self) -> list[RunReport]:
        """Return the runs in the history."""
        return RunHistory(self.tierd.state_dir).read()

    def objects(self) -> set[str]:
        """Return the objects of segments in the store, by segment id."""
        return {file.name[21:43] for file in self.store_dir.rglob("*") if file.suffix in _SEGMENT_SUFFIXES}

    def assert_clean(self, daemon: Daemon, *topics: str, tierd: Installation | None = None) -> None:
        """Check that only latest records are left of topics, only readable segments in the store, and verify passes.

        Args:
            daemon: that runs.
            topics: that were compacted.
            tierd: installation of the daemon.
        """
        for topic in topics:
            found = self.read(topic)
            assert (len(found), dict(found)) == (KEYS, self.latest(topic)), found
        expired = (tierd or self.tierd).ask("expire", "--once")  # an idle partition is checked once a minute
        assert expired.exit_code == 0, expired.output
        daemon.wait_until(lambda: self.objects() == self.readable(), what="a store with only readable segments")
        verified = self.tierd.ask("verify", "--deep")
        assert verified.exit_code == 0, verified.output

    def readable(self) -> set[str]:
        """Return the ids of the finished segments of every topic; fail if other rows exist."""
        rows = [row for topic in self._writers for row in self.tierd.segments(f"{topic}-0")]
        if any(row["state"] != "COPY_SEGMENT_FINISHED" for row in rows):
            return set()
        return {row["segment_id"] for row in rows}

    def assert_rebuilt_alike(self) -> None:
        """Check that a rebuild of lost metadata gives the same rows; no daemon may run."""
        rebuilt = self.installation("rebuilt")
        ended = rebuilt.ask("rebuild-metadata")
        assert ended.exit_code == 0, ended.output
        for topic in self._writers:
            name = f"{topic}-0"
            assert _comparable(rebuilt.segments(name)) == _comparable(self.tierd.segments(name))
            assert rebuilt.cat(name) == self.tierd.cat(name)


_SEGMENT_SUFFIXES = (".log", ".indexes", ".manifest")


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def _comparable(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row without its time of writing, which no manifest has."""
    return [{name: value for name, value in row.items() if name != "event_timestamp_ms"} for row in rows]
