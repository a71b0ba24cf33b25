"""Arrays that kernels take and give, without numpy until one is made: the daemon starts without it."""

from array import array
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Union

if TYPE_CHECKING:
    import numpy as np

Numbers: TypeAlias = Union[memoryview, "np.ndarray"]
"""A column of numbers: of ``Columns``, or one that was computed."""


def as_array(numbers: "array[int]") -> "np.ndarray":
    """The same numbers, not copied, of the same width."""
    import numpy as np  # noqa: PLC0415 the daemon starts without

    return np.asarray(memoryview(numbers))


class Gathered(NamedTuple):
    """Fields of bytes behind one another, as the buffers of an Arrow binary array of n elements.

    Attributes:
        offsets: int32[n + 1], where in ``data`` each begins and the last one ends.
        data: uint8[].
        validity: uint8[(n + 7) // 8], a bit a field, the lowest first: 0 for null.
    """

    offsets: "np.ndarray"
    data: "np.ndarray"
    validity: "np.ndarray"


class GatheredHeaders(NamedTuple):
    """Headers of n records, as the buffers of an Arrow list of structs of a key, a string, and a value, binary.

    Attributes:
        offsets: int32[n + 1], where in the keys and values each record's begin and the last one's end.
        keys: never null, always UTF-8.
        values: as many.
    """

    offsets: "np.ndarray"
    keys: Gathered
    values: Gathered
