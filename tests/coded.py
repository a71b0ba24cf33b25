"""The code of an error, for ``pytest.raises``."""

from collections.abc import Callable

from tierd.errors import TierError, TierErrorCode


def coded(code: TierErrorCode | None) -> Callable[[TierError], bool]:
    """Return the ``check`` of ``pytest.raises`` that an error has ``code``; None for none."""
    return lambda error: error.code is code
