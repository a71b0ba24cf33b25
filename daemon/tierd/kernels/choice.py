"""Choice between the twins: the compiled one is loaded once there are so many records that this pays.

The reference does the work until then: no append waits for the load.
"""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

import structlog

from tierd.kernels import reference
from tierd.kernels.arrays import Gathered, GatheredHeaders, Numbers, PackedRows
from tierd.kernels.columns import STEP_RECORDS, BatchColumns, Columns, RecordFault

if TYPE_CHECKING:
    import numpy as np

log = structlog.get_logger()

WORTH_COMPILING_RECORDS = 100_000
"""Number of records that the reference decodes in the time that loading numba takes."""

_LOADING_SWITCH_INTERVAL_S = 0.0003
_REFERENCE_S_PER_RECORD = 1e-5
_LOADING = threading.Lock()


class _Kernels(Protocol):
    """Functions of both twins; the docstrings are in the reference."""

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

    def hash_keys(
        self, payload: bytes | memoryview, key_start: Numbers, key_size: Numbers, secret: bytes
    ) -> tuple["np.ndarray", "np.ndarray"]: ...

    def latest_per_key(
        self, hi: Numbers, lo: Numbers, position: Numbers
    ) -> tuple["np.ndarray", "np.ndarray", "np.ndarray"]: ...

    def select_records(
        self, payload: bytes | memoryview, count: int, keep: Numbers, *, timestamp_shift_ms: int = 0
    ) -> bytes | RecordFault: ...

    def rewrite_batches(
        self,
        data: bytes | memoryview,
        bounds: Numbers,
        first_record: Numbers,
        keep: Numbers,
        timestamps_ms: tuple[Numbers, Numbers],
    ) -> tuple[memoryview, memoryview] | RecordFault: ...

    def gather(self, payload: bytes | memoryview, starts: Numbers, sizes: Numbers) -> Gathered: ...

    def gather_headers(
        self, payload: bytes | memoryview, headers_start: Numbers, header_count: Numbers
    ) -> GatheredHeaders | RecordFault: ...

    def pack_rows(
        self,
        out: "np.ndarray",
        at: int,
        payload: bytes | memoryview,
        keys: tuple[Numbers, Numbers],
        values: tuple[Numbers, Numbers],
        *,
        timestamps_ms: Numbers | None,
    ) -> PackedRows: ...

    def latest_in_order(self, payload: bytes | memoryview, starts: Numbers, key_sizes: Numbers) -> "np.ndarray": ...


class KernelChoice:
    """Kernels of a process: the reference at first, then, once and for good, the compiled ones. For any thread."""

    def __init__(self, *, compiled_module: str = "tierd.kernels.compiled") -> None:
        self._compiled_module = compiled_module
        self._kernels = cast("_Kernels", reference)
        self._is_decided = False
        self._is_loading = False  # or loaded: records are counted no more
        self._decoded = 0  # threads may lose counts of one another: it is an estimate

    def for_records(self, count: int) -> _Kernels:
        """Return the kernels for ``count`` more records: the reference until the compiled ones are loaded.

        Loading takes a second, or several where no compiled code is kept on disk yet; a thread of its own does it.
        """
        if not self._is_loading:
            self._decoded += max(count, 0)
            if self._decoded >= WORTH_COMPILING_RECORDS:
                self._is_loading = True  # two threads that come here at once start two loads; the second finds it done
                threading.Thread(target=self.compile, name="kernels", daemon=True).start()
        return self._kernels

    def compile(self) -> None:
        """Return when the compiled kernels are loaded; where that is impossible, log it once, and use the reference."""
        self._is_loading = True
        with _LOADING:
            if self._is_decided:
                return
            try:
                with _short_switch_interval():
                    self._kernels = cast("_Kernels", import_module(self._compiled_module))
            except Exception as error:  # noqa: BLE001 numba and LLVM fail in ways of their own, and we can do without
                log.warning("kernels_not_compiled", reason=str(error), consequence="records are decoded slowly")
            self._is_decided = True

    async def compile_for(self, count: int) -> None:
        """Wait for the compiled kernels before bulk work on ``count`` records, if there are so many that this pays.

        The wait ends at the latest after the time that the reference takes for the records; the load then goes on
        beside the work, as it does after a cancellation.
        """
        if count < WORTH_COMPILING_RECORDS or self._is_decided:
            return
        loop, loaded = asyncio.get_running_loop(), asyncio.Event()

        def load() -> None:
            self.compile()
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(loaded.set)

        threading.Thread(target=load, name="kernels", daemon=True).start()  # ends with the process, and holds up no end
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(count * _REFERENCE_S_PER_RECORD):
                await loaded.wait()


@contextlib.contextmanager
def _short_switch_interval() -> Iterator[None]:
    """Let threads take turns more often.

    A load gives the interpreter up at each file that it reads, and where the reference decodes, it waited a whole
    interval for it again, a thousand times.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _LOADING_SWITCH_INTERVAL_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


CHOICE = KernelChoice()
"""The choice of this process."""


def compile_kernels() -> None:
    """Load the compiled kernels before the work, and wait for them: a second, once; see ``KernelChoice``."""
    CHOICE.compile()


async def compile_kernels_for(count: int) -> None:
    """Do so before bulk work on ``count`` records that may wait, within bounds; see ``KernelChoice.compile_for``.

    Without it, the reference works beside the thread that loads, and both are slow: they share the interpreter.
    """
    await CHOICE.compile_for(count)
