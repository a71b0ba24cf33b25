"""Replaying a log's batches into what is known of producers, without the work that the next batch undoes.

A producer is known by its last five batches and its open transaction. So of a run of a producer's batches of data that
neither begin nor end a transaction, only the last five leave a trace, and they may wait for the end of the run.
"""

from collections import deque
from collections.abc import Callable, Iterable

from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.producers.active_producer import BATCHES_KEPT
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.transactions import EndMarker
from tierd.log.records.batch_header import IS_CONTROL, IS_TRANSACTIONAL, BatchHeader

KIND = IS_TRANSACTIONAL | IS_CONTROL
"""The attributes that say what a batch does to its producer's transaction."""


class ProducerReplay:
    """Feeds batches in the order of the log; afterwards ``finish`` is called, or the state is thrown away.

    Attributes:
        runs: what only continues a run is not passed to ``replay``: its position is appended to the run with its
            producer id and kind. Control batches are in no run.
    """

    def __init__(self, producers: ProducerStateManager, header_at: Callable[[int], BatchHeader]) -> None:
        """Replay into ``producers``; ``header_at`` reads the header at a position that was appended to a run."""
        self.runs: dict[tuple[int, int], deque[int]] = {}
        self._producers = producers
        self._header_at = header_at

    def replay(self, header: BatchHeader, marker: EndMarker | None) -> AbortedTransaction | None:
        """Replay what waits of its producer, then the batch itself; as ``ProducerStateManager.replay``."""
        producer_id, kind = header.producer_id, header.attributes & KIND
        for known in (0, IS_TRANSACTIONAL):
            self._replay_run(self.runs.pop((producer_id, known), ()))
        aborted = self._producers.replay(header, marker)
        if not kind & IS_CONTROL:
            self.runs[producer_id, kind] = deque(maxlen=BATCHES_KEPT)
        return aborted

    def finish(self) -> None:
        """Replay what waits."""
        for run in self.runs.values():
            self._replay_run(run)
        self.runs.clear()

    def _replay_run(self, run: Iterable[int]) -> None:
        for position in run:
            self._producers.replay(self._header_at(position), None)
