"""Every seed, every former finding, and a few hundred mutations: each gives a value or an error of tierd in time."""

import time
import tracemalloc
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.fuzz.mutation import mutations
from tests.fuzz.target import CORPUS
from tests.fuzz.targets import TARGETS

MUTATIONS = 300
INPUT_LIMIT_S = 5.0
MEMORY_LIMIT_BYTES = 64 << 20


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Drop log lines: damage is logged, and these inputs have much of it."""
    with capture_logs():
        yield


each_target = pytest.mark.parametrize("name", sorted(TARGETS))


@each_target
def test_seeds_and_former_findings_are_decoded_in_little_memory(name: str) -> None:
    target = TARGETS[name]
    inputs = target.seeds() + target.kept()
    tracemalloc.start()
    try:
        for data in inputs:
            target.run(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MEMORY_LIMIT_BYTES


@each_target
def test_mutations_are_decoded_or_refused_in_time(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds() + target.kept()
    for data in mutations(seeds, count=MUTATIONS, seed=1):
        begun_s = time.monotonic()
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"input: {data.hex()}")
            raise
        assert time.monotonic() - begun_s < INPUT_LIMIT_S, data.hex()


def test_every_folder_of_the_corpus_has_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} <= set(TARGETS)
