"""The doubles of these tests keep the promises of what they stand for."""

import pytest

from tests.contracts.changelog_source import ChangelogSourceContract
from tests.contracts.restore_store import MakeStore, ReadContent, RestoreStoreContract
from tests.fakes.memory_changelog import MemoryChangelogs
from tests.fakes.memory_store import MemoryStore
from tests.restore.changelog.reader.restorer_bench import values
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_source import ChangelogSource


class TestMemoryChangelogs(ChangelogSourceContract):
    @pytest.fixture
    def partition(self) -> TopicPartition:
        return TopicPartition("t", 0)

    @pytest.fixture
    def source(self, partition: TopicPartition) -> ChangelogSource:
        source = MemoryChangelogs()
        source.add(partition, values(0, 9))
        return source


class TestMemoryStore(RestoreStoreContract):
    @pytest.fixture(params=["persistent", "transactional", "volatile"])
    def make_store(self, request: pytest.FixtureRequest) -> MakeStore:
        kind = request.param
        made: list[MemoryStore] = []

        def make() -> MemoryStore:
            first = MemoryStore(persistent=kind != "volatile", transactional=kind == "transactional")
            made.append(made[-1].after_crash() if made else first)
            return made[-1]

        return make

    @pytest.fixture
    def read_content(self) -> ReadContent:
        return lambda store: dict(store.content)  # type: ignore[attr-defined] # of MemoryStore
