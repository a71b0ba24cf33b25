"""Environment in which Java programs run at their full speed; other tests use flags for a fast start."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

FAST_JVM: Final = {"KAFKA_JVM_FLAGS": "-XX:-UseSerialGC -XX:+UseG1GC -XX:TieredStopAtLevel=4"}
"""Settings of ``kafka.sh``: the garbage collector and the compilers that a stock installation has."""


@contextmanager
def environment(more: Mapping[str, str]) -> Iterator[None]:
    """Add variables to the environment of this process and of those that it starts."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
