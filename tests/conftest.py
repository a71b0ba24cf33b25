"""What every test may ask for."""

import asyncio.constants
import signal
import traceback
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

FRAMES_OF_A_FUTURE = 3


def pytest_configure() -> None:
    """Take SIGINT as a terminal's foreground does, whatever started pytest.

    A shell starts its background jobs with SIGINT ignored, and every process that a test starts would inherit that.
    A command that inherits it leaves it ignored, as the shell asked; the tests send the signal and mean it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def short_notes_of_futures() -> Iterator[None]:
    """The debug mode of asyncio notes the stack that made each future and each handle, with all of pytest in it.

    Only a complaint about one of them shows its note. Whole ones took a quarter of the time of async tests.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio.constants, "DEBUG_STACK_DEPTH", FRAMES_OF_A_FUTURE)
        patched.setattr(traceback.extract_stack, "__defaults__", (None, FRAMES_OF_A_FUTURE))  # what C calls
        yield


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked golden log dirs; read only, copy what is to change."""
    return golden_root(tmp_path_factory.mktemp("golden"))


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """A test that configures logging, as every command does, must not leave a closed stream to the next one."""
    yield
    structlog.reset_defaults()
