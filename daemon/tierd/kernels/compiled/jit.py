"""Compilation of the kernels: at import, for given types, kept on disk, without the interpreter's lock."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numba import njit, types
from numba.core.cgutils import raw_memmove
from numba.extending import intrinsic

BYTES = "Array(uint8, 1, 'C', readonly=True)"
INTS = "Array(int32, 1, 'C', readonly=True)"

P = ParamSpec("P")
T = TypeVar("T")


def compile_for(signature: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Compile now, for these types only; the machine code is kept beside the source or in the user's cache."""

    def compile_function(function: Callable[P, T]) -> Callable[P, T]:
        try:
            compiled: Callable[P, T] = njit(signature, nogil=True, cache=True)(function)
        except (RuntimeError, OSError):  # no place to keep it: a read-only installation without a home
            compiled = njit(signature, nogil=True)(function)
        return compiled

    return compile_function


def _move_bytes(
    _typing: object, out: types.Array, at: types.Integer, data: types.Array, start: types.Integer, size: types.Integer
) -> tuple[object, Callable[..., object]]:
    """Return type and machine code of ``move_bytes``, as numba asks for them."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> object:  # noqa: ANN401 of untyped llvmlite
        to, source = (context.make_array(signature.args[n])(context, builder, values[n]).data for n in (0, 2))
        places = builder.gep(to, [values[1]]), builder.gep(source, [values[3]])
        raw_memmove(builder, *places, values[4], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(out, at, data, start, size), generate


move_bytes = cast("Callable[[np.ndarray, int, np.ndarray, int, int], None]", intrinsic(_move_bytes))
"""Copy ``data[start : start + size]`` to ``out[at : at + size]`` inside of a kernel. **Nothing is checked**; kernels
call ``varints.write_bytes``, which checks.

numba copies a slice byte by byte, and memmove in steps of a register: 64 and 5 ns for a field of 100 bytes.
"""
