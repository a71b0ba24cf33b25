"""Property: whatever a follower writes, a comparison with the tier finds no fault in it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.tiering.standbys.replicated import COMPACT, DELETE, Replicated, keyed


@dataclass(frozen=True)
class Step:
    """One change: its verb, the keys of its records, and a number of records or batches."""

    verb: str
    keys: str = "a"
    count: int = 0


VERBS = (
    ["append"] * 3
    + ["commit", "abort", "copy", "copy", "follow", "follow", "follow 1"]
    + ["epoch", "lose", "clean leader", "clean standby", "retain leader", "retain standby"]
)
steps = st.builds(
    Step, verb=st.sampled_from(VERBS), keys=st.text("abcABC", min_size=1, max_size=4), count=st.integers(0, 12)
)


async def play(pair: Replicated, step: Step) -> None:
    """Carry out one step."""
    match step.verb:
        case "append":
            pair.append(keyed(*step.keys))
        case "commit" | "abort":
            pair.transact(keyed(*step.keys), commit=step.verb == "commit")
        case "copy":
            await pair.copy()
        case "follow":
            pair.follow()
        case "follow 1":
            pair.follow(1)
        case "epoch":
            pair.begin_epoch()
        case "lose":
            pair.lose_end(step.count)
        case "clean leader" | "clean standby":
            if pair.policy == COMPACT:
                (pair.clean_leader if step.verb == "clean leader" else pair.clean_standby)()
        case "retain leader":
            pair.retain_on_leader(step.count)
        case "retain standby":
            pair.retain_on_standby(step.count)


async def compare(story: Sequence[Step], policy: frozenset[str], folder: Path) -> None:
    pair = Replicated(folder, policy=policy)
    for step in story:
        await play(pair, step)
    pair.truncate()
    allowed = set()
    if pair.standby.log_end_offset < pair.tier_end:
        allowed.add("standby-behind")
    if pair.standby.log_start_offset > pair.tier_end:
        allowed.add("standby-gap")
    if pair.has_lost_cleaned or pair.standby.log_end_offset < pair.cleaned_on_leader:
        # A cleaner removed records because of later ones that are lost, or that the standby has not got yet.
        allowed |= {"standby-keys", "standby-revived"}
    if pair.has_lost_cleaned:  # where the cleaner removed all before the loss, the files end below the log end
        allowed.add("standby-behind")
    for is_compacted in {None, policy == COMPACT}:
        found = await pair.verify(is_compacted=is_compacted)
        assert {each.kind for each in found if each.severity.value != "note"} <= allowed, found
        shallow = set(await pair.faults(deep=False, is_compacted=is_compacted))
        assert shallow <= allowed


TRUNCATED_TO_ITS_START = [
    Step("append"),
    Step("append"),
    Step("follow"),
    Step("lose", count=1),
    Step("retain standby", count=1),
]


BEGUN_INSIDE_A_BATCH = [
    Step("append"),
    Step("append", keys="acA"),
    Step("copy"),
    Step("retain leader", count=2),
    Step("follow"),
]


ROLLED_AT_ITS_START = [
    Step("append"),
    Step("append"),
    Step("follow"),
    Step("retain standby", count=2),
    Step("clean standby"),
]


CLEANED_BECAUSE_OF_A_LOST_RECORD = [
    Step("append"),
    Step("append", keys="b"),
    Step("copy"),
    Step("append"),
    Step("follow"),
    Step("clean standby"),
    Step("lose", count=1),
]


@example(CLEANED_BECAUSE_OF_A_LOST_RECORD, COMPACT)
@example(ROLLED_AT_ITS_START, COMPACT)
@example(TRUNCATED_TO_ITS_START, DELETE)
@example(BEGUN_INSIDE_A_BATCH, DELETE)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=3, max_size=25), st.sampled_from([DELETE, COMPACT]))
def test_no_copy_that_a_follower_writes_has_a_fault(story: Sequence[Step], policy: frozenset[str]) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(compare(story, policy, Path(folder)))
