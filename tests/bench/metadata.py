"""Cost of the metadata: lookups, durable transitions on every backend, loads, memory, and a rebuild."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.report import Figure
from tests.services.postgres import PostgresService
from tests.services.redis import empty_database
from tests.services.services import Services

_BACKENDS = ("memory", "sqlite", "postgres", "redis")
_PARTITIONS = (1, 32)


def bench_metadata(root: Path, *, segments: int, seconds: float, rounds: int) -> list[Figure]:
    """Measure medians of ``rounds``; the reference of a ratio was measured in the same child process."""
    return [
        *_lookups(segments, rounds),
        *_transitions(root, seconds, rounds),
        *_load(root, segments, rounds),
        *_follow(root, segments, rounds),
        *_memory(segments),
    ]


def bench_rebuild(root: Path, *, segments: int) -> list[Figure]:
    """Measure ``MetadataRebuild`` over a bucket in memory, into an empty SQLite."""
    found = _child("rebuild", root, segments)
    return [
        Figure("rebuild: segments", segments, ""),
        Figure("rebuild: from a bucket in memory into SQLite", found["ours"], "s"),
        Figure("rebuild: segments a second", segments / found["ours"], "1/s"),
        Figure("rebuild: against parsing every manifest", found["reference"] / found["ours"], "ratio"),
    ]


def _lookups(segments: int, rounds: int) -> list[Figure]:
    runs = [_child("lookups", segments, 100_000) for _ in range(rounds)]
    return [
        Figure(f"metadata: lookups by offset, {segments} segments", median(run["ours"] for run in runs), "1/s"),
        Figure("metadata: against a bisection", median(run["ours"] / run["reference"] for run in runs), "ratio"),
    ]


def _transitions(root: Path, seconds: float, rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    in_memory: dict[int, float] = {}  # what the event loop alone can do, by number of partitions
    (root / "services").mkdir()
    with Services(root / "services") as services:
        addresses = _addresses(root, services)
        for backend in _BACKENDS:
            for partitions in _PARTITIONS:
                found = _child("transitions", backend, next(addresses[backend]), partitions, seconds, rounds)
                name = f"metadata: {backend}, {partitions} partition{'s' if partitions > 1 else ''}"
                figures += [
                    Figure(f"{name}: durable transitions", found["ours"], "1/s"),
                    Figure(
                        f"{name}: against bare writes of one row",
                        found["ratio"],
                        "ratio",
                        ">= 0.5" if partitions > 1 else "",
                    ),
                ]
                if backend == "memory":
                    in_memory[partitions] = found["ours"]
                else:
                    ratio = found["ours"] / in_memory[partitions]
                    figures.append(Figure(f"{name}: against transitions in memory", ratio, "ratio"))
    return figures


def _addresses(root: Path, services: Services) -> dict[str, Iterator[str]]:
    """Return fresh, empty stores of every kind."""
    postgres = PostgresService(services.start("postgres")["TIERD_TEST_POSTGRES_DSN"], services)
    redis_url = services.start("redis")["TIERD_TEST_REDIS_URL"]

    def numbered() -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number

    return {
        "memory": ("-" for _ in numbered()),
        "sqlite": (str(root / f"metadata-{number}.db") for number in numbered()),
        "postgres": (postgres.create_database() for _ in numbered()),
        "redis": (empty_database(redis_url) for _ in numbered()),
    }


def _load(root: Path, segments: int, rounds: int) -> list[Figure]:
    _child("fill", root / "load.db", segments)
    runs = []
    for number in range(rounds):
        copy = shutil.copyfile(root / "load.db", root / f"load-{number}.db")
        runs.append(_child("load", copy, segments))
    return [
        Figure(f"metadata: leader load of {segments} segments, SQLite", median(run["ours"] for run in runs), "s"),
        Figure(
            "metadata: against reading the rows and parsing them",
            median(run["reference"] / run["ours"] for run in runs),
            "ratio",
        ),
        Figure("metadata: its memory afterwards", median(run["memory"] for run in runs) / 1e6, "MB"),
        Figure("metadata: its peak while loading", median(run["peak"] for run in runs) / 1e6, "MB"),
    ]


def _follow(root: Path, segments: int, rounds: int) -> list[Figure]:
    """Measure the refresh of a follower after a change, of few segments and of many; ``_load`` has filled the many."""
    figures = []
    for count in (50, segments):
        if count != segments:
            _child("fill", root / "follow.db", count)
        filled = root / ("load.db" if count == segments else "follow.db")
        runs = [
            _child("follow", shutil.copyfile(filled, root / f"follow-{count}-{number}.db"), count, 100)
            for number in range(rounds)
        ]
        name = f"metadata: look of a follower after a change, {count} segments, SQLite"
        figures += [
            Figure(name, median(run["ours"] for run in runs) * 1e6, "us"),
            Figure(
                "metadata: against reading all rows", median(run["ours"] / run["reference"] for run in runs), "ratio"
            ),
        ]
    return figures


def _memory(segments: int) -> list[Figure]:
    partitions = 10
    memory = _child("many", partitions, segments)["memory"]
    return [
        Figure(f"metadata: memory of {partitions * segments} segments", memory / 1e6, "MB"),
        Figure("metadata: memory of a segment", memory / (partitions * segments), "B"),
    ]


def _child(*arguments: object) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.metadata_child", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer
