"""Pytest plugin: real servers as fixtures. Without a server its tests skip; with CI=true they fail."""

import os
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from tests.services.azure import AzureService
from tests.services.chromium import ChromiumService, axe_file
from tests.services.faulty_path import FaultyPath
from tests.services.gcs import GcsService
from tests.services.mqtt import MqttService
from tests.services.postgres import PostgresService
from tests.services.prometheus import PrometheusService
from tests.services.redis import RedisService, empty_database
from tests.services.s3 import S3Admin, S3Service
from tests.services.services import ServiceError, Services, program


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    """Return the servers of this test run, which end with it."""
    with Services() as running:
        yield running


def started(services: Services, name: str) -> dict[str, str]:
    """Start a server and return its settings; without the server, skip, and under CI=true fail."""
    try:
        return services.start(name)
    except ServiceError as error:
        given_up(error)


def installed(name: str) -> str:
    """Return the path of a program; without it, skip, and under CI=true fail."""
    try:
        return program(name)
    except ServiceError as error:
        given_up(error)


def given_up(error: ServiceError) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true needs every server: {error}")
    pytest.skip(str(error))


@pytest.fixture(scope="session")
def s3_service(services: Services) -> S3Service:
    """Return a real S3 server."""
    return S3Service.of(started(services, "s3"), services)


@pytest.fixture(scope="session")
def s3_admin(s3_service: S3Service) -> Iterator[S3Admin]:
    """Return a plain client of the S3 server."""
    admin = S3Admin(s3_service)
    yield admin
    admin.close()


@pytest.fixture
def s3_bucket(s3_admin: S3Admin) -> str:
    """Return an empty bucket for this test."""
    return s3_admin.create_bucket()


@pytest.fixture(scope="session")
def postgres_service(services: Services) -> PostgresService:
    """Return a real PostgreSQL."""
    return PostgresService(started(services, "postgres")["TIERD_TEST_POSTGRES_DSN"], services)


@pytest.fixture
def postgres_dsn(postgres_service: PostgresService) -> Iterator[str]:
    """Return an empty database for this test."""
    dsn = postgres_service.create_database()
    yield dsn
    postgres_service.drop_database(dsn)


@pytest.fixture(scope="session")
def redis_service(services: Services) -> RedisService:
    """Return a real Redis."""
    return RedisService(started(services, "redis")["TIERD_TEST_REDIS_URL"], services)


@pytest.fixture
def redis_url(redis_service: RedisService) -> str:
    """Return an empty database for this test."""
    return empty_database(redis_service.url)


@pytest.fixture(scope="session")
def mqtt_service(services: Services) -> MqttService:
    """Return a real Mosquitto with the settings of ``config/mosquitto.conf``."""
    return MqttService.of(started(services, "mqtt"), services)


@pytest.fixture(scope="session")
def gcs_service(services: Services) -> GcsService:
    """Return a GCS emulator."""
    return GcsService(started(services, "gcs")["TIERD_TEST_GCS_ENDPOINT"], services)


@pytest.fixture
def gcs_bucket(gcs_service: GcsService) -> str:
    """Return an empty bucket for this test."""
    return gcs_service.create_bucket()


@pytest.fixture(scope="session")
def azure_service(services: Services) -> AzureService:
    """Return an Azure emulator."""
    settings = started(services, "azure")
    return AzureService(
        endpoint_url=settings["TIERD_TEST_AZURE_ENDPOINT"],
        account=settings["TIERD_TEST_AZURE_ACCOUNT"],
        account_key=settings["TIERD_TEST_AZURE_KEY"],
        services=services,
    )


@pytest.fixture
def azure_container(azure_service: AzureService) -> str:
    """Return an empty container for this test."""
    return azure_service.create_container()


@pytest.fixture(scope="session")
def prometheus_service(services: Services) -> PrometheusService:
    """Return a real Prometheus, without rules and targets."""
    return PrometheusService(started(services, "prometheus")["TIERD_TEST_PROMETHEUS_URL"], services)


@pytest.fixture(scope="session")
def promtool() -> str:
    """Return the path of the real promtool; without it, skip, and under CI=true fail."""
    return installed("promtool")


@pytest.fixture(scope="session")
def chromium(services: Services) -> ChromiumService:
    """Return a real Chromium, one for all tests of the run; without it or axe, skip, and under CI=true fail."""
    if not axe_file().is_file():
        given_up(ServiceError("axe is not installed: run tests/services/install.sh browser"))
    return ChromiumService(started(services, "chromium")["TIERD_TEST_CHROMIUM_URL"], axe_file().read_text())


@pytest.fixture(scope="session")
def toxiproxy_url(services: Services) -> str:
    """Return the control address of a Toxiproxy."""
    return started(services, "toxiproxy")["TIERD_TEST_TOXIPROXY_URL"]


@pytest.fixture
def faulty_path_to(toxiproxy_url: str) -> Iterator[Callable[[str], FaultyPath]]:
    """Make paths to servers that can be spoiled, for this test."""
    made: list[FaultyPath] = []

    def make(upstream_url: str) -> FaultyPath:
        made.append(FaultyPath(toxiproxy_url, upstream_url))
        return made[-1]

    yield make
    for path in made:
        path.delete()


@pytest.fixture
def faulty_s3(s3_service: S3Service, faulty_path_to: Callable[[str], FaultyPath]) -> FaultyPath:
    """Return a path to the S3 server that can be spoiled."""
    return faulty_path_to(s3_service.endpoint_url)
