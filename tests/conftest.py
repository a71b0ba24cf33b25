"""Fixtures of every test."""

import asyncio.constants
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tests.golden.unpack import golden_root

# The time of an example depends on the load of the machine; no test asserts a time.
settings.register_profile("untimed", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("untimed")

pytest_plugins = ["tests.services.fixtures", "tests.services.kafka_fixtures"]

FRAMES_OF_A_FUTURE = 3


def pytest_configure() -> None:
    """Restore the default of SIGINT, also when pytest runs in the background.

    A shell starts its background jobs with SIGINT ignored, and every process that a test starts would inherit that.
    A command that inherits this setting ignores the signal, while the tests expect that it ends the command.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def short_notes_of_futures() -> Iterator[None]:
    """Shorten the notes that the debug mode of asyncio keeps of the stack of each future and each handle.

    Only a warning about one of them shows its note. Whole notes took a quarter of the time of async tests.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio.constants, "DEBUG_STACK_DEPTH", FRAMES_OF_A_FUTURE)
        patched.setattr(traceback.extract_stack, "__defaults__", (None, FRAMES_OF_A_FUTURE))  # defaults of C calls
        yield


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked golden log dirs; read only: copy a directory before a change."""
    return golden_root(tmp_path_factory.mktemp("golden"))


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Restore logging after each test: a command configures it, and would leave a closed stream to the next test."""
    yield
    structlog.reset_defaults()
