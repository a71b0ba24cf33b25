"""DeadlineKeyValueStore: a store each call of which ends in time, with counts and times of the calls."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tierd.clock import Clock
from tierd.errors import BackendUnavailableError, OutcomeUnknownError, PreconditionFailedError, TierError
from tierd.masking import Masking
from tierd.metadata.kv.key_value_store import Batch, KeyValueStore
from tierd.metadata.kv.refusals import WritesRefusedError

_T = TypeVar("_T")

OnOutcome = Callable[[TierError | None], None]
"""Called after every call: with the failure when the store did not answer, None when it did. Must not block."""


@dataclass(frozen=True, slots=True)
class CallLatency:
    """Number of calls, their total time, and the number of failed calls.

    A precondition that did not hold is an answer and no failure.
    """

    count: int = 0
    total_s: float = 0.0
    errors: int = 0


class DeadlineKeyValueStore(KeyValueStore):
    """A store that ends a call after ``timeout_s``: a read has failed, a batch may or may not have been written."""

    def __init__(
        self,
        inner: KeyValueStore,
        *,
        timeout_s: float,
        clock: Clock,
        on_outcome: OnOutcome = lambda _: None,
        masking: Masking | None = None,
    ) -> None:
        """Keep the collaborators; ``masking`` is for a store of another package, whose exceptions may hold secrets."""
        self._inner = inner
        self._on_outcome = on_outcome
        self._timeout_s = timeout_s
        self._clock = clock
        self._masking = masking
        self._latencies: dict[str, CallLatency] = {}

    async def get(self, key: str) -> bytes | None:
        """Return the value under ``key``."""
        return await self._in_time("get", self._inner.get(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist."""
        return await self._in_time("get", self._inner.get_many(keys))

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return every pair below ``prefix``, in order."""
        return await self._in_time("scan", self._inner.scan(prefix))

    async def apply(self, batch: Batch) -> None:
        """Apply a batch durably, all of it or nothing."""
        await self._in_time("apply", self._inner.apply(batch))

    async def close(self) -> None:
        """Close the store behind it, without a deadline."""
        await self._inner.close()

    def latencies(self) -> Mapping[str, CallLatency]:
        """Return the calls so far by operation (``get``, ``scan``, ``apply``), failed ones too."""
        return dict(self._latencies)

    async def _in_time(self, operation: str, call: Awaitable[_T]) -> _T:
        begun_s, failed = self._clock.monotonic_s(), 1
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await call
        except TimeoutError as error:
            cause = f"the metadata store did not answer within {self._timeout_s} s"
            remedy = "look at the store and its disk; tierd tries again"
            kind = OutcomeUnknownError if operation == "apply" else BackendUnavailableError
            late = kind(cause, remedy=remedy)
            self._on_outcome(late)
            raise late from error
        except TierError as error:
            failed = int(not isinstance(error, PreconditionFailedError))
            self._on_outcome(error if _is_silence(error) else None)
            raise
        except Exception as error:
            if self._masking is None:
                raise
            raise self._masking.error(error) from None
        else:
            failed = 0
            self._on_outcome(None)
            return answer
        finally:
            so_far = self._latencies.get(operation, CallLatency())
            taken_s = self._clock.monotonic_s() - begun_s
            self._latencies[operation] = CallLatency(so_far.count + 1, so_far.total_s + taken_s, so_far.errors + failed)


def _is_silence(error: TierError) -> bool:
    """Return True if the store did not answer; a store that refuses writes for now does answer."""
    is_away = isinstance(error, BackendUnavailableError | OutcomeUnknownError)
    return is_away and not isinstance(error, WritesRefusedError)
