"""Pytest plugin: the real servers as fixtures. Where one cannot be had its tests skip; with CI=true they fail."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.services.s3 import FaultyPath, S3Admin, S3Service
from tests.services.services import ServiceError, Services


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    """Every server of this test run, ended with it."""
    with Services() as running:
        yield running


def started(services: Services, name: str) -> dict[str, str]:
    """Start a server and return its settings; where it cannot be had, skip, and under CI=true fail."""
    try:
        return services.start(name)
    except ServiceError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true needs every server: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def s3_service(services: Services) -> S3Service:
    """A real S3 server."""
    settings = started(services, "s3")
    return S3Service(
        endpoint_url=settings["TIERD_TEST_S3_ENDPOINT"],
        region=settings["TIERD_TEST_S3_REGION"],
        access_key_id=settings["TIERD_TEST_S3_ACCESS_KEY"],
        secret_access_key=settings["TIERD_TEST_S3_SECRET_KEY"],
        services=services,
    )


@pytest.fixture(scope="session")
def s3_admin(s3_service: S3Service) -> Iterator[S3Admin]:
    """A plain client of that server."""
    admin = S3Admin(s3_service)
    yield admin
    admin.close()


@pytest.fixture
def s3_bucket(s3_admin: S3Admin) -> str:
    """An empty bucket for this test."""
    return s3_admin.create_bucket()


@pytest.fixture(scope="session")
def toxiproxy_url(services: Services) -> str:
    """The control address of a Toxiproxy."""
    return started(services, "toxiproxy")["TIERD_TEST_TOXIPROXY_URL"]


@pytest.fixture
def faulty_path_to(toxiproxy_url: str) -> Iterator[Callable[[str], FaultyPath]]:
    """Makes a path to a server that can be spoiled, for this test."""
    made: list[FaultyPath] = []

    def make(upstream_url: str) -> FaultyPath:
        made.append(FaultyPath(toxiproxy_url, upstream_url))
        return made[-1]

    yield make
    for path in made:
        path.delete()


@pytest.fixture
def faulty_s3(s3_service: S3Service, faulty_path_to: Callable[[str], FaultyPath]) -> FaultyPath:
    """A path to the S3 server that can be spoiled."""
    return faulty_path_to(s3_service.endpoint_url)
