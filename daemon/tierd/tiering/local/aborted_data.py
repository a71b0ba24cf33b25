"""Search for aborted data in a segment without a transaction index. Blocking."""

import mmap
import os
from pathlib import Path

from tierd.files import open_to_read
from tierd.log import ControlRecordType, RecordBatch, iter_batches


def has_aborted_data(log: Path) -> bool:
    """Return True if records of a transaction lie in ``log`` before the marker that aborts it.

    Without the index a reader of committed records would take them for committed. A marker alone proves nothing: a
    transaction may have written nothing here, and compaction removes aborted records before their marker.
    """
    with open_to_read(log) as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            view = memoryview(content)
            try:
                return _has_aborted_data(view, str(log))
            finally:
                view.release()


def _has_aborted_data(view: memoryview, name: str) -> bool:
    open_producers: set[int] = set()
    batch: RecordBatch | None = None
    found = False
    for batch in iter_batches(view, name=name, check_crc=False):
        if not batch.is_transactional:
            continue
        if not batch.is_control:
            open_producers.add(batch.producer_id)
            continue
        control_type = batch.control_type()
        if control_type is ControlRecordType.ABORT and batch.producer_id in open_producers:
            found = True
            break
        open_producers.discard(batch.producer_id)
    return found
