"""What every test may ask for."""

from pathlib import Path

import pytest

from tests.golden.unpack import golden_root

pytest_plugins = ["tests.services.fixtures"]


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked golden log dirs; read only, copy what is to change."""
    return golden_root(tmp_path_factory.mktemp("golden"))
