"""Pytest plugin: real Kafka clusters as fixtures. Without Kafka tests skip; with CI=true they fail."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.services.kafka_cluster import KafkaCluster, KafkaUnavailableError, require_kafka

MakeCluster = Callable[..., KafkaCluster]
"""The arguments of ``KafkaCluster`` behind its folder: ``make(nodes=3, version="4.3.1", properties={...})``."""


def fetched_or_skip(fetch: Callable[[], object], what: str) -> None:
    """Fetch what a test needs of Kafka; without it the test skips, and with CI=true it fails."""
    try:
        fetch()
    except KafkaUnavailableError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true needs {what}: {error}")
        pytest.skip(f"no Kafka, which gives {what}: {error}")


@pytest.fixture(scope="session")
def kafka_jars() -> Callable[[str], str]:
    """Fetch the jars of a version; return the version."""

    def require(version: str) -> str:
        fetched_or_skip(lambda: require_kafka(version), "a real broker")
        return version

    return require


def _clusters(folder: Callable[[], Path], kafka_jars: Callable[[str], str], running: ExitStack) -> MakeCluster:
    def make(*, nodes: int = 3, version: str = "3.9.2", **settings: Any) -> KafkaCluster:  # noqa: ANN401 - arguments of KafkaCluster
        return running.enter_context(KafkaCluster(folder(), nodes=nodes, version=kafka_jars(version), **settings))

    return make


@pytest.fixture
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Callable[[str], str]) -> Iterator[MakeCluster]:
    """Start clusters that end with the test."""
    with ExitStack() as running:
        yield _clusters(lambda: tmp_path_factory.mktemp("kafka"), kafka_jars, running)


@pytest.fixture(scope="module")
def shared_kafka(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Callable[[str], str]) -> Iterator[MakeCluster]:
    """Start clusters that the tests of one module share."""
    with ExitStack() as running:
        yield _clusters(lambda: tmp_path_factory.mktemp("kafka"), kafka_jars, running)
