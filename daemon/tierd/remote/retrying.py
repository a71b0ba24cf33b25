"""RetryingObjectStore: repetition of calls to the object store that failed retriably.

A call has one budget: each of its requests is sent at most ``attempts`` times, also when a whole upload begins anew. A
backend that repeats a single request inside a call (``Retry.request``) takes from the budget of that call. A request
that takes back what a failed call has begun (``Retry.taking_back``) has a budget of its own::

    put             attempt 1 ── upload_part 7: 1, 2, 3 ✗ ── complete ✗       (the upload is gone)
                    attempt 2 ── upload_part 7: 4, 5 ✗                        all 5 are used: the call has failed
"""

import random as _random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple, TypeVar

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.errors import RetriableRemoteStorageError, TierError
from tierd.remote.forwarding import ForwardedCall, ForwardingObjectStore
from tierd.remote.object_store import ObjectStore
from tierd.remote.observed import ObjectStoreCall, observed

log = structlog.get_logger()

T = TypeVar("T")


class _RepeatedRequest(NamedTuple):
    """Name of a repeated call, or of a repeated single request inside a call."""

    operation: str
    key: str
    part: int


class _Budget:
    """Attempts of one call and of the requests inside it. Tasks that the call starts share it."""

    def __init__(self, attempts: int) -> None:
        self.is_spent = False  # invariant: once True, the call is not begun again
        self._attempts = attempts
        self._made: Counter[_RepeatedRequest] = Counter()

    def take(self, request: _RepeatedRequest) -> None:
        """Count one more attempt.

        Raises:
            RetriableRemoteStorageError: the request has had all of its attempts, in earlier rounds of the call.
        """
        if self._made[request] >= self._attempts:
            self.is_spent = True
            raise RetriableRemoteStorageError(
                f"{request.operation} {request.key}: sent {self._attempts} times in one call, which still failed",
                remedy="it is tried again later; look at the store, or raise remote.retry.attempts",
            )
        self._made[request] += 1

    def failed(self, request: _RepeatedRequest) -> None:
        """Note that an attempt failed; the last attempt of a request ends the whole call."""
        self.is_spent = self.is_spent or self._made[request] >= self._attempts


_BUDGET: ContextVar[_Budget | None] = ContextVar("tierd_attempts_of_the_call", default=None)


class Retry:
    """Rules of repetition: a call is repeated while it fails retriably. A cancellation ends it, also in a wait."""

    def __init__(
        self,
        *,
        clock: Clock,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        attempts: int = 6,
        random: Callable[[], float] = _random.random,
        on_retry: Callable[[str, TierError], None] | None = None,
        on_request: Callable[[ObjectStoreCall], None] | None = None,
    ) -> None:
        """Set the rules.

        Args:
            clock: for the waits.
            backoff: lengths of the waits.
            attempts: at each request, the first one included; at least 1.
            random: for the jitter.
            on_retry: called for every failure that is about to be repeated, with the operation and the failure.
            on_request: called for every attempt at a request inside a call that is repeated as a whole, without bytes.
        """
        self._clock = clock
        self._backoff = backoff
        self._attempts = attempts
        self._random = random
        self._on_retry = on_retry
        self._on_request = on_request

    async def __call__(self, operation: str, call: Callable[[], Awaitable[T]], *, key: str = "") -> T:
        """Return the answer of ``call``; the last attempt raises its own failure.

        ``operation`` is for reports. Together with ``key``, that of an object or a prefix, it names what is repeated.
        """
        with _opened(_Budget(self._attempts)) as budget:
            return await self._repeated(budget, _RepeatedRequest(operation, key, 0), call)

    async def request(self, operation: str, call: Callable[[], Awaitable[T]], *, key: str, part: int = 0) -> T:
        """Repeat one request inside a call that is repeated as a whole; the attempts are those of that call.

        Args:
            operation: as ``ObjectStoreCall`` has it.
            call: makes one attempt.
            key: of the object.
            part: number or position of a part, in an upload; with ``operation`` and ``key`` it names the request.
        """
        request = _RepeatedRequest(operation, key, part)
        observed = partial(self._observed, request, call)
        budget = _BUDGET.get()
        if budget is not None:
            return await self._repeated(budget, request, observed)
        with _opened(_Budget(self._attempts)) as budget:
            return await self._repeated(budget, request, observed)

    async def taking_back(self, operation: str, call: Callable[[], Awaitable[T]], *, key: str) -> T:
        """Repeat one request that takes back what a call has begun, with attempts of its own.

        The call may have no attempt left. Attempts that are spent here do not count for the call, which may begin anew.
        """
        request = _RepeatedRequest(operation, key, 0)
        with _opened(_Budget(self._attempts)) as budget:
            return await self._repeated(budget, request, partial(self._observed, request, call))

    def paused_by(self, backoff: Backoff, clock: Clock) -> "Retry":
        """Return the same rules with other pauses."""
        return Retry(
            clock=clock,
            backoff=backoff,
            attempts=self._attempts,
            random=self._random,
            on_retry=self._on_retry,
            on_request=self._on_request,
        )

    async def _repeated(self, budget: _Budget, request: _RepeatedRequest, call: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while True:
            budget.take(request)
            try:
                return await call()
            except TierError as error:
                if not error.retriable:
                    raise
                budget.failed(request)
                if budget.is_spent:
                    raise
                failures += 1
                delay_s = self._backoff.delay_s(failures, random=self._random)
                self._report(request.operation, error, delay_s)
            await self._clock.sleep(delay_s)

    async def _observed(self, request: _RepeatedRequest, call: Callable[[], Awaitable[T]]) -> T:
        if self._on_request is None:
            return await call()
        return await observed(request.operation, request.key, call(), on_call=self._on_request, clock=self._clock)

    def _report(self, operation: str, error: TierError, delay_s: float) -> None:
        log.warning("object_store_retry", operation=operation, delay_s=round(delay_s, 3), error=str(error))
        if self._on_retry is not None:
            self._on_retry(operation, error)


@contextmanager
def _opened(budget: _Budget) -> Iterator[_Budget]:
    token = _BUDGET.set(budget)
    try:
        yield budget
    finally:
        _BUDGET.reset(token)


class RetryingObjectStore(ForwardingObjectStore):
    """An ``ObjectStore`` that repeats the calls of another one by the rules of ``retry``.

    A lost reply does no harm. The next attempt at a put or a replace finds its own content in the store.
    """

    def __init__(self, inner: ObjectStore, retry: Retry) -> None:
        super().__init__(inner)
        self._retry = retry

    async def check(self) -> None:
        """Raise unless the store may be used now: a check is not repeated."""
        await self._inner.check()

    async def _forward(self, call: ForwardedCall, send: Callable[[], Awaitable[T]]) -> T:
        return await self._retry(call.operation, send, key=call.key)
