"""Fixtures of every test."""

import asyncio.constants
import gc
import signal
import traceback
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import botocore.session
import pytest
import structlog
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.fakes import lasting_objects
from tests.golden.unpack import golden_root
from tierd.app.daemon.descriptors import raise_descriptor_limit

# The time of an example depends on the load of the machine; no test asserts a time. The examples of a property are the
# same in every run of the same code, so that a change fails for what it changes; `make explore` looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("new", deadline=None, print_blob=True)
settings.load_profile("same")

pytest_plugins = ["tests.services.fixtures", "tests.services.kafka_fixtures"]

FRAMES_OF_A_FUTURE = 3

LONG_FILES = ("tests/tiering/crash_points/test_crash_points.py", "tests/tiering/test_simulated_week.py")
"""Files that begin first. In the order of their names they came last, and one worker waited minutes for the other."""


def pytest_configure() -> None:
    """Restore the default of SIGINT, also when pytest runs in the background.

    A shell starts its background jobs with SIGINT ignored, and every process that a test starts would inherit that.
    A command that inherits this setting ignores the signal, while the tests expect that it ends the command.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    raise_descriptor_limit()  # a log that a simulated crash leaves open waits for the collection of garbage


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let long files begin first: xdist gives the files to its workers in this order."""
    places = {Path(__file__).parents[1] / file: place for place, file in enumerate(LONG_FILES)}
    assert all(path.is_file() for path in places), f"LONG_FILES of {__file__} has a file that is gone"
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without collections of garbage: nearly all objects of modules and tests last."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Take all modules and tests out of the collections of garbage, which took over a second each with them."""
    lasting_objects.set_aside()


@pytest.fixture(scope="session", autouse=True)
def same_examples() -> Iterator[None]:
    """Keep the constants of loaded modules out of the examples of the profile "same".

    Which modules are loaded depends on the tests that ran before in the process.
    """
    with pytest.MonkeyPatch.context() as patched:
        if settings().derandomize:
            patched.setattr(providers, "_get_local_constants", lambda: providers._local_constants)
        yield


@pytest.fixture(scope="session", autouse=True)
def short_notes_of_futures() -> Iterator[None]:
    """Shorten the notes that the debug mode of asyncio keeps of the stack of each future and each handle.

    Only a warning about one of them shows its note. Whole notes took a quarter of the time of async tests.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio.constants, "DEBUG_STACK_DEPTH", FRAMES_OF_A_FUTURE)
        patched.setattr(traceback.extract_stack, "__defaults__", (None, FRAMES_OF_A_FUTURE))  # defaults of C calls
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_models_of_s3() -> Iterator[None]:
    """Let all sessions of botocore share what they parse of the API of S3: parsing it took 0.2 s of each new client."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(botocore.session, "create_loader", cache(botocore.session.create_loader))
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
