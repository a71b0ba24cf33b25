"""Arrays that kernels take and return. numpy is imported for the first one: the daemon starts without numpy."""

from array import array
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Union

if TYPE_CHECKING:
    import numpy as np

Numbers: TypeAlias = Union[memoryview, "np.ndarray"]
"""A column of numbers: one of ``Columns``, or a computed one."""


def as_array(numbers: "array[int]") -> "np.ndarray":
    """Return the same numbers as a numpy array, not copied, of the same width."""
    import numpy as np  # noqa: PLC0415 the daemon starts without

    return np.asarray(memoryview(numbers))


class Gathered(NamedTuple):
    """Fields of bytes behind one another, as the buffers of an Arrow binary array of n elements.

    Attributes:
        offsets: int32[n + 1], position in ``data`` at which each field begins and the last one ends.
        data: uint8[].
        validity: uint8[(n + 7) // 8], a bit a field, the lowest first: 0 for null.
    """

    offsets: "np.ndarray"
    data: "np.ndarray"
    validity: "np.ndarray"


class GatheredHeaders(NamedTuple):
    """Headers of n records, as the buffers of an Arrow list of structs of a key, a string, and a value, binary.

    Attributes:
        offsets: int32[n + 1], index in keys and values at which the headers of each record begin and the last ones end.
        keys: not null, in UTF-8.
        values: as many.
    """

    offsets: "np.ndarray"
    keys: Gathered
    values: Gathered


class PackedRows(NamedTuple):
    """Keys and values of n records behind one another.

    Attributes:
        end: position behind the last one.
        key_sizes: int32[n].
        value_sizes: int32[n], what stands behind the key; -1 for a record that deletes its key.
    """

    end: int
    key_sizes: "np.ndarray"
    value_sizes: "np.ndarray"
