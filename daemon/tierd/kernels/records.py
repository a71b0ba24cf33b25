"""Which twin decodes records: the compiled one, once there is enough to decode that loading it pays."""

import threading
from importlib import import_module
from typing import Protocol, cast

import structlog

from tierd.kernels import reference
from tierd.kernels.columns import SMALLEST_RECORD_BYTES, STEP_RECORDS, BatchColumns, Columns

log = structlog.get_logger()

WORTH_COMPILING_RECORDS = 100_000
"""Decoding so many with the reference takes as long as loading numba."""


class _Kernels(Protocol):
    def decode_records(
        self,
        payload: bytes | memoryview,
        count: int,
        *,
        base_offset: int = 0,
        base_timestamp_ms: int = 0,
        append_time_ms: int | None = None,
        start: int = 0,
        must_fill: bool = True,
    ) -> Columns: ...

    def decode_batches(
        self, data: bytes | memoryview, *, start: int = 0, at_most: int = STEP_RECORDS
    ) -> BatchColumns: ...


class KernelChoice:
    """Begins with the reference; changes once, for good, to the compiled kernels. For any thread."""

    def __init__(self, *, compiled_module: str = "tierd.kernels.compiled") -> None:
        self._compiled_module = compiled_module
        self._kernels = cast("_Kernels", reference)
        self._is_decided = False
        self._decoded = 0  # threads may lose counts of one another: it is an estimate
        self._lock = threading.Lock()

    def for_records(self, count: int) -> _Kernels:
        """The kernels for ``count`` more records; the first call that makes it pay takes about a second."""
        if not self._is_decided:
            self._decoded += max(count, 0)
            if self._decoded >= WORTH_COMPILING_RECORDS:
                self.compile()
        return self._kernels

    def compile(self) -> None:
        """Load the compiled kernels now; where that is impossible, say so once and stay with the reference."""
        with self._lock:
            if self._is_decided:
                return
            try:
                self._kernels = cast("_Kernels", import_module(self._compiled_module))
            except Exception as error:  # noqa: BLE001 numba and LLVM fail in ways of their own, and we can do without
                log.warning("kernels_not_compiled", reason=str(error), consequence="records are decoded slowly")
            self._is_decided = True


_CHOICE = KernelChoice()


def decode_records(
    payload: bytes | memoryview,
    count: int,
    *,
    base_offset: int = 0,
    base_timestamp_ms: int = 0,
    append_time_ms: int | None = None,
    start: int = 0,
    must_fill: bool = True,
) -> Columns:
    """Find the fields of ``count`` records of magic 2 with the faster twin; see ``reference.decode_records``."""
    bounded = min(count, len(payload) // SMALLEST_RECORD_BYTES)  # a damaged header's count alone does not pay
    return _CHOICE.for_records(bounded).decode_records(
        payload,
        count,
        base_offset=base_offset,
        base_timestamp_ms=base_timestamp_ms,
        append_time_ms=append_time_ms,
        start=start,
        must_fill=must_fill,
    )


def decode_batches(data: bytes | memoryview, *, start: int = 0, at_most: int = STEP_RECORDS) -> BatchColumns:
    """Find the fields of the records of many batches with the faster twin; see ``reference.decode_batches``."""
    columns = _CHOICE.for_records(0).decode_batches(data, start=start, at_most=at_most)
    _CHOICE.for_records(len(columns.records))
    return columns


def compile_kernels() -> None:
    """Load the compiled kernels now rather than amid the work; takes about a second, once."""
    _CHOICE.compile()
