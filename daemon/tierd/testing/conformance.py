"""The marks of the contract suites: the numbered line of a behaviour specification that a test covers."""

from collections.abc import Callable
from typing import TypeVar

_Test = TypeVar("_Test", bound=Callable[..., object])


class Conformance:
    """Marks that are read from the source, so that pytest with strict markers needs no declaration of them."""

    def spec(self, line: str) -> Callable[[_Test], _Test]:
        """Mark a test with the line that it covers, such as ``remote-tiering 75``; the test stays as it is."""
        assert line, "a mark names a line"
        return lambda test: test


conformance = Conformance()
