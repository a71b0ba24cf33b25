"""PatientMetadata: carries out the metadata manager's rules for failed writes: repeat, settle, or fail."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tierd.clock import Clock
from tierd.errors import (
    BackendUnavailableError,
    FencedError,
    OutcomeUnknownError,
    RemoteStorageNotReadyError,
    TierError,
)
from tierd.metadata import PartitionView, RemoteLogMetadataManager
from tierd.model import TopicIdPartition


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """Outcome of a write.

    Attributes:
        problem: why the write did not happen, in words; None when it did.
        is_lost: the partition is not ours any more.
        is_unknown: the write may have happened all the same.
    """

    problem: str | None = None
    is_lost: bool = False
    is_unknown: bool = False


class PatientMetadata:
    """Metadata manager with retries: each of its writes may be repeated as it was."""

    def __init__(self, manager: RemoteLogMetadataManager, *, clock: Clock, tries: int, retry_s: float) -> None:
        self.manager = manager
        self._clock = clock
        self._tries = tries
        self._retry_s = retry_s

    async def write(self, operation: Callable[[], Awaitable[None]]) -> WriteOutcome:
        """Carry out a write; repeat it while the store does not answer or the outcome is unknown.

        Before it repeats a write of unknown outcome, the manager checks if the write happened.
        """
        is_unknown, problem = False, ""
        for attempt in range(self._tries):
            if attempt:
                await self._clock.sleep(self._retry_s)
            try:
                await operation()
            except FencedError as error:
                return WriteOutcome(str(error), is_lost=True)
            except (BackendUnavailableError, OutcomeUnknownError, RemoteStorageNotReadyError) as error:
                is_unknown = is_unknown or isinstance(error, OutcomeUnknownError)
                problem = str(error)
            except TierError as error:
                return WriteOutcome(str(error))
            else:
                return WriteOutcome()
        return WriteOutcome(problem, is_unknown=is_unknown)

    async def view(self, partition: TopicIdPartition) -> PartitionView | WriteOutcome:
        """Return the present view, loaded first when it is in doubt; or the outcome that names the problem."""
        outcome = await self.write(lambda: self.manager.ensure_ready(partition))
        if outcome.problem is not None:
            return outcome
        try:
            return self.manager.view(partition)
        except TierError as error:
            return WriteOutcome(str(error))
