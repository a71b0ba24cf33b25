"""Fixtures of the scenarios: brokers for one test each, and installations of tierd."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.scenarios.cluster_lab import NODES, ClusterLab
from tests.scenarios.cluster_story import SEED
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.stores import SpoilableS3, s3_section
from tests.scenarios.warm_tierd import WarmTierd
from tests.scenarios.watched_daemons import WatchedDaemons
from tests.services.faulty_path import FaultyPath
from tests.services.kafka_cluster import KafkaBroker
from tests.services.kafka_fixtures import MakeCluster
from tests.services.prometheus import PrometheusService
from tests.services.s3 import S3Admin, S3Service

MakeBroker = Callable[..., KafkaBroker]
MakeInstallation = Callable[..., Installation]
MakeClusterLab = Callable[[Settings], ClusterLab]


@pytest.fixture
def make_broker(tmp_path: Path, kafka_jars: Callable[[str], str]) -> Iterator[MakeBroker]:
    """Start brokers that end with the test; without Kafka the test skips, and with CI=true it fails."""
    with ExitStack() as running:

        def make(
            version: str = "3.9.2",
            *,
            log_dir_count: int = 1,
            properties: Mapping[str, str] | None = None,
            has_own_controller: bool = False,
            folder: str = "kafka",
        ) -> KafkaBroker:
            broker = KafkaBroker(
                tmp_path / folder,
                version=kafka_jars(version),
                log_dir_count=log_dir_count,
                properties=properties,
                has_own_controller=has_own_controller,
            )
            return running.enter_context(broker)

        yield make


@pytest.fixture(scope="session")
def warm_tierd() -> Iterator[WarmTierd]:
    """Answer reading commands quickly."""
    with WarmTierd() as warm:
        yield warm


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory, prometheus_service: PrometheusService, warm_tierd: WarmTierd
) -> WatchedDaemons:
    """Make daemons that a real Prometheus watches with the shipped alerts and short times."""
    return WatchedDaemons(tmp_path_factory.mktemp("watched"), prometheus_service, warm_tierd)


@pytest.fixture
def make_installation(tmp_path: Path, warm_tierd: WarmTierd) -> MakeInstallation:
    """Make installations of tierd below ``tmp_path``."""

    def make(
        log_dirs: Sequence[Path],
        *,
        name: str = "tierd",
        remote: Settings | None = None,
        settings: Settings | None = None,
    ) -> Installation:
        return Installation(tmp_path / name, log_dirs, remote=remote, settings=settings, warm=warm_tierd)

    return make


@pytest.fixture
def s3_remote(s3_service: S3Service, s3_bucket: str) -> Settings:
    """Return the ``remote`` section for an empty bucket of the real S3 server."""
    return s3_section(s3_service, s3_bucket)


@pytest.fixture
def spoilable_s3(s3_service: S3Service, s3_bucket: str, s3_admin: S3Admin, faulty_s3: FaultyPath) -> SpoilableS3:
    """Return an empty bucket behind a path that can be spoiled."""
    return SpoilableS3(s3_service, s3_bucket, s3_admin, faulty_s3)


@pytest.fixture
def make_cluster_lab(
    tmp_path: Path,
    kafka_cluster: MakeCluster,
    spoilable_s3: SpoilableS3,
    faulty_path_to: Callable[[str], FaultyPath],
    warm_tierd: WarmTierd,
) -> MakeClusterLab:
    """Start clusters with a tierd beside each broker, by the ``metadata`` section; no daemon runs yet."""

    def make(metadata: Settings) -> ClusterLab:
        return ClusterLab(
            tmp_path,
            kafka_cluster(nodes=3, version="4.3.1"),
            metadata=metadata,
            s3=spoilable_s3,
            own_paths={node: faulty_path_to(spoilable_s3.service.endpoint_url) for node in NODES},
            warm=warm_tierd,
            seed=SEED,
        )

    return make
