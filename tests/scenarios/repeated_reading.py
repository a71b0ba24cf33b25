"""Client that reads partitions from their start to their end, again and again, while a story goes on."""

import threading
from types import TracebackType
from typing import Self

from tests.services.kafka_clients.partitions import Counts, Records
from tests.services.kafka_clients.reading_clients import ReadingClient
from tests.services.waiting import wait_until

_PAUSE_S = 0.1
_DEADLINE_S = 90.0


class RepeatedReading:
    """Readings by one client in a thread; a context manager, whose end raises what has failed."""

    def __init__(self, client: ReadingClient, bootstrap: str, wanted: Counts, *, committed: bool = True) -> None:
        self.name = client.name
        self.committed = committed
        self._client = client
        self._bootstrap = bootstrap
        self._wanted = wanted
        self._readings: list[Records] = []
        self._end = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"reading by {client.name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(_DEADLINE_S)
        if error is None:
            assert not self._thread.is_alive(), f"{self._thread.name} did not end"
            self._check()

    @property
    def readings(self) -> list[Records]:
        """Return the readings so far."""
        return list(self._readings)

    def wait_more(self, count: int) -> None:
        """Wait until so many further readings have begun and ended."""
        target = len(self._readings) + count + 1  # one is under way

        def done() -> bool:
            self._check()
            return len(self._readings) >= target

        wait_until(done, what=f"{count} readings by {self.name}", deadline_s=_DEADLINE_S)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._end.wait(_PAUSE_S):
                self._readings.append(self._client.read(self._bootstrap, self._wanted, committed=self.committed))
        except BaseException as failure:  # noqa: BLE001 - raised in the thread of the story
            self._failure = failure
