"""Arrays that kernels take and give, without numpy until one is made: the daemon starts without it."""

from array import array
from typing import TYPE_CHECKING, TypeAlias, Union

if TYPE_CHECKING:
    import numpy as np

Numbers: TypeAlias = Union[memoryview, "np.ndarray"]
"""A column of numbers: of ``Columns``, or one that was computed."""


def as_array(numbers: "array[int]") -> "np.ndarray":
    """The same numbers, not copied, of the same width."""
    import numpy as np  # noqa: PLC0415 the daemon starts without

    return np.asarray(memoryview(numbers))
