"""Log dirs that real brokers left on disk, with what Kafka's own tools said of them, unpacked once per test run.

``<root>/kafka-<version>/<stage>/logdir/`` is one log dir, ``<root>/kafka-<version>/<stage>/oracle/<partition>/`` what
it holds: ``records.jsonl.gz`` (a consumer), ``committed.jsonl.gz`` (the same, read_committed), ``offsets.json``
(ListOffsets), ``dump.txt.gz`` (DumpLogSegments). The stages: ``clean``, ``epochs``, ``old-format``, ``crash`` with a
``before`` (damaged) and an ``after`` (recovered by the broker), and one partition's life under the log cleaner:
``compact-before``, ``compact-pass1``, ``compact-more`` (appended to), ``compact-pass2``; the last three without dumps.
``streams``, of 3.9.2 alone, has no cases here: the ``state`` of an application of Kafka Streams, its changelogs, and
what its queries answered.
"""

import gzip
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

ARCHIVES = Path(__file__).parent
MANIFEST = "MANIFEST.json"


class OracleRecord(TypedDict, total=False):
    """A line of ``records.jsonl.gz``; ``leaderEpoch`` is missing in ``old-format``."""

    offset: int
    timestamp: int
    timestampType: str
    leaderEpoch: int
    key: str | None
    value: str | None
    headers: list[list[str | None]]
    error: str


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """One partition of one broker at one stage. Paths are relative to the unpacked root.

    Attributes:
        logdirs: the log dirs that hold a replica of it; for ``crash``, the damaged one and the recovered one.
        oracle: the folder of its oracles.
    """

    name: str
    kind: str
    broker: str
    logdirs: tuple[str, ...]
    partition: str
    oracle: str
    config: Mapping[str, object]
    notes: str

    @property
    def stage(self) -> str:
        return self.name.split("/")[0]

    @property
    def id(self) -> str:
        return f"{self.broker}-{self.name.replace('/', '-')}-{self.partition.rpartition('-')[2]}"


@cache
def golden_cases(*stages: str) -> tuple[GoldenCase, ...]:
    """Return the cases of ``stages``, of both broker versions; every case when no stage is named."""
    with tarfile.open(ARCHIVES / "manifest.tar.xz") as archive:
        member = archive.extractfile(MANIFEST)
        assert member is not None
        entries = json.load(member)["cases"]
    cases = (_case(entry) for entry in entries)
    return tuple(case for case in cases if not stages or case.stage in stages)


def _case(entry: dict[str, object]) -> GoldenCase:
    logdirs: tuple[str, ...]
    if entry["kind"] == "crash":
        logdirs = (str(entry["before"]), str(entry["after"]))
    else:
        listed = entry.get("logdirs", [entry["logdir"]])
        assert isinstance(listed, list)
        logdirs = tuple(str(item) for item in listed)
    config = entry["config"]
    assert isinstance(config, dict)
    return GoldenCase(
        name=str(entry["case"]),
        kind=str(entry["kind"]),
        broker=str(entry["broker"]),
        logdirs=logdirs,
        partition=str(entry["partition"]),
        oracle=str(entry["oracle"]),
        config=config,
        notes=str(entry["notes"]),
    )


def golden_root(folder: Path) -> Path:
    """Unpack every archive below ``folder`` and return it. A test that writes makes a copy."""
    for archive in sorted(ARCHIVES.glob("*.tar.xz")):
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    return folder


def read_lines(path: Path) -> list[OracleRecord]:
    """Return the records of a ``*.jsonl.gz``."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_offsets(oracle: Path) -> dict[str, int]:
    """``logStartOffset``, ``highWatermark`` and ``lastStableOffset`` of ``offsets.json``."""
    content = json.loads((oracle / "offsets.json").read_text())
    return {name: content[name] for name in ("logStartOffset", "highWatermark", "lastStableOffset")}
