"""The contract of changelog sources, for the log dirs of this host, the tier, and both as one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contracts.changelog_source import ChangelogSourceContract
from tests.restore.changelog.sources.changelog_fixtures import NAME, RemoteLogs, counted, local_log
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_source import ChangelogSource
from tierd.restore.changelog.sources.composite_source import CompositeSource
from tierd.restore.changelog.sources.local_log_source import LocalChangelogs, LocalEnd, LocalLogSource
from tierd.restore.changelog.sources.remote_segment_source import RemoteChangelogs, RemoteSegmentSource


class OfNamedPartition(ChangelogSourceContract):
    """The contract for the partition of the fixtures."""

    @pytest.fixture
    def partition(self) -> TopicPartition:
        return NAME


class TestLocalLogSource(OfNamedPartition):
    @pytest.fixture
    def source(self, tmp_path: Path) -> ChangelogSource:
        local_log(tmp_path, [(0, 10)])
        return LocalLogSource([tmp_path], delete_retention=lambda _: None, groups={})


class TestRemoteSegmentSource(OfNamedPartition):
    @pytest.fixture
    async def source(self) -> AsyncIterator[ChangelogSource]:
        remote = RemoteLogs()
        remote.add(counted(0, 10), start=0, end=10)
        source = RemoteSegmentSource(
            {NAME: remote.view.partition}, remote.tier(), delete_retention=lambda _: None, groups={}
        )
        yield source
        await source.close()


class TestCompositeSource(OfNamedPartition):
    @pytest.fixture
    async def source(self, tmp_path: Path) -> AsyncIterator[ChangelogSource]:
        local_log(tmp_path, [(0, 10)])
        remote = RemoteLogs()
        remote.add(counted(0, 5), start=0, end=5)
        source = CompositeSource(
            LocalChangelogs([tmp_path], is_compacted=lambda _: False, end=LocalEnd.HIGH_WATERMARK),
            RemoteChangelogs({NAME: remote.view.partition}, remote.tier(), is_compacted=lambda _: False),
            delete_retention=lambda _: None,
            groups={},
        )
        yield source
        await source.close()
