"""A lower limit of the unpacked size of a batch, so that tests need no batch of 257 MiB."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tierd.log import RecordBatch
from tierd.log.records import record_columns


@contextmanager
def opening_at_most(limit_bytes: int) -> Iterator[None]:
    """Lower, or raise, the limit of all code that opens a batch without naming a limit."""
    with pytest.MonkeyPatch.context() as patch:
        for opening in (RecordBatch.payload, RecordBatch.records, record_columns.columns_of):
            defaults = opening.__kwdefaults__
            assert defaults is not None
            patch.setitem(defaults, "max_bytes", limit_bytes)
        yield
