"""Five thousand stories of push replication. ``make push-simulation SEEDS=…`` plays more of them."""

from collections.abc import Callable

import pytest

from tests.replication.simulation.simulation import PushSimulation, PushSimulationFailedError, run_push_seed

SEEDS = 5000
_AT_ONCE = 100


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("first", range(0, SEEDS, _AT_ONCE))
def test_push_replication_keeps_its_promises_in_every_story(first: int) -> None:
    played = [run_push_seed(seed) for seed in range(first, first + _AT_ONCE)]
    assert sum(each.sessions for each in played) > _AT_ONCE
    assert sum(each.appends for each in played) > 10 * _AT_ONCE


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", [5, 60, 563])
def test_seed_gives_the_same_steps_again(seed: int) -> None:
    first, second = list[str](), list[str]()
    run_push_seed(seed, first.append)
    run_push_seed(seed, second.append)
    assert len(first) > 100
    assert first == second


@pytest.mark.usefixtures("quiet")
def test_failed_story_says_how_it_is_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(_: PushSimulation) -> None:
        raise AssertionError("a record is lost")

    monkeypatch.setattr(PushSimulation, "_close", lose)

    with pytest.raises(PushSimulationFailedError) as failed:
        run_push_seed(7)

    assert "seed 7: AssertionError: a record is lost" in str(failed.value)
    assert "python -m tests.replication.simulation --seed 7" in str(failed.value)


def _lose_appends(played: PushSimulation) -> None:
    """Take the last batch from each copy without a word, as a standby would that answers before it appends."""
    record = next(iter(played.controller.records.values()))
    for node in played.controller.nodes.values():
        if node.node_id != record.leader_id:
            log = node.disk.log(record.partition)
            log._truncate(max(log.log_end_offset - 1, log.log_start_offset))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("spoil", [_lose_appends])
def test_loss_of_an_acknowledged_record_is_noticed(
    spoil: Callable[[PushSimulation], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = PushSimulation._come_to_rest

    def come_to_rest(self: PushSimulation) -> None:
        rest(self)
        spoil(self)
        assert not self._missing(), self._missing()

    monkeypatch.setattr(PushSimulation, "_come_to_rest", come_to_rest)

    with pytest.raises(PushSimulationFailedError, match="it ends at"):
        run_push_seed(60)
