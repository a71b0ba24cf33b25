import pytest

from tests.fakes.clock import FakeClock
from tierd.errors import KafkaUnreachableError, RemoteResourceNotFoundError, RetriableRemoteStorageError, TierError
from tierd.model import TopicPartition
from tierd.restore.live_cluster.partition_restore import StorePatience

AWAY = RetriableRemoteStorageError("the store is away", remedy="wait")
MINUTE_S = 60


def patience_of(clock: FakeClock) -> StorePatience:
    return StorePatience(TopicPartition("orders", 0), clock=clock, patience_s=10 * MINUTE_S)


async def fail_until(patience: StorePatience, clock: FakeClock, until_s: float) -> None:
    while clock.monotonic_s() < until_s:
        await patience.wait_after(AWAY)


async def test_store_that_is_away_for_minutes_is_asked_again_every_few_seconds() -> None:
    clock = FakeClock()

    await fail_until(patience_of(clock), clock, 9 * MINUTE_S)

    assert max(clock.sleeps_s) <= 20
    assert len(clock.sleeps_s) >= 27


async def test_store_that_is_away_for_longer_than_the_patience_is_an_error() -> None:
    clock = FakeClock()

    with pytest.raises(RetriableRemoteStorageError) as raised:
        await fail_until(patience_of(clock), clock, 11 * MINUTE_S)

    assert raised.value is AWAY
    assert clock.monotonic_s() > 10 * MINUTE_S


async def test_store_that_answers_between_two_outages_is_waited_for_anew() -> None:
    clock = FakeClock()
    patience = patience_of(clock)
    await fail_until(patience, clock, 9 * MINUTE_S)

    patience.answered()

    await fail_until(patience, clock, 18 * MINUTE_S)


@pytest.mark.parametrize("error", [RemoteResourceNotFoundError("gone"), KafkaUnreachableError("no broker")])
async def test_error_that_does_not_pass_or_is_not_of_the_store_is_not_waited_for(error: TierError) -> None:
    clock = FakeClock()

    with pytest.raises(type(error)):
        await patience_of(clock).wait_after(error)

    assert clock.sleeps_s == []
