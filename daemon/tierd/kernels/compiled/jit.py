"""Compilation of the kernels: at import, for given types, kept on disk, without the interpreter's lock."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from numba import njit

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
