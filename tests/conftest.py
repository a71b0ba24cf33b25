"""What every test may ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tests.golden.unpack import golden_root

# How long an example takes says how busy the machine is; no test asserts a time.
settings.register_profile("untimed", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("untimed")

pytest_plugins = ["tests.services.fixtures", "tests.services.kafka_fixtures"]


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked golden log dirs; read only, copy what is to change."""
    return golden_root(tmp_path_factory.mktemp("golden"))


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """A test that configures logging, as every command does, must not leave a closed stream to the next one."""
    yield
    structlog.reset_defaults()
