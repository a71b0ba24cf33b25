"""The rules of the log cleaner as the daemon passes them, and rounds of the cleaner without a service."""

from collections.abc import Callable

from tests.fakes.clock import FakeClock
from tierd.log.cleaning.cleaning_control import CleaningControl
from tierd.log.cleaning.cleaning_round import CleaningRound, measure_log
from tierd.log.cleaning.round_rewriter import StartRewriting
from tierd.log.partition.unified_log import UnifiedLog
from tierd.pipeline.cleaning import own_log_rewriting
from tierd.pipeline.cleaning.key_map import BYTES_PER_KEY

SECRET = bytes(range(16))


def own_log_rules(*, max_keys: int = 10_000) -> StartRewriting:
    """Return the rules with room for ``max_keys`` keys."""
    return own_log_rewriting(memory_bytes=max_keys * BYTES_PER_KEY, new_secret=lambda: SECRET)


def begin_round(
    log: UnifiedLog,
    *,
    cleaned_to: int | None,
    now_ms: int,
    rules: StartRewriting | None = None,
    control: CleaningControl | None = None,
) -> CleaningRound:
    """Begin a round over a log whose only user is the caller."""
    control = control or CleaningControl(str(log.topic_partition), clock=FakeClock())
    return log.apply(
        lambda state: CleaningRound(
            state,
            measure_log(state, checkpointed_offset=cleaned_to, now_ms=now_ms),
            start=rules or own_log_rules(),
            control=control,
            now_ms=now_ms,
        )
    )


def clean(
    log: UnifiedLog,
    *,
    cleaned_to: int | None,
    now_ms: int,
    rules: StartRewriting | None = None,
    between: Callable[[], None] = lambda: None,
) -> int:
    """Clean a log whose only user is the caller; return the end offset. ``between`` runs before each replacement."""
    begun = begin_round(log, cleaned_to=cleaned_to, now_ms=now_ms, rules=rules)
    begun.map_keys()
    for group in begun.groups():
        output = begun.rewrite(group)
        between()
        log.apply(lambda _, group=group, output=output: begun.replace(group, output, now_ms=now_ms))  # type: ignore[misc]
    return begun.end_offset
