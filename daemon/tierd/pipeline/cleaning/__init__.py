"""The rules of the log cleaner for tierd's own logs: what stays, in bounded memory. No Spark, no store."""

from collections.abc import Callable

from tierd.log import RoundFacts, RoundRewriter, StartRewriting

__all__ = ["own_log_rewriting"]


def own_log_rewriting(*, memory_bytes: int, new_secret: Callable[[], bytes]) -> StartRewriting:
    """Return what begins the rounds of a log cleaner.

    Args:
        memory_bytes: for the map of a round's keys; with more keys than fit, a round ends early and another one goes
            on.
        new_secret: 16 random bytes, others every time.
    """

    def start(facts: RoundFacts) -> RoundRewriter:
        from tierd.pipeline.cleaning.own_log_rewriter import OwnLogRewriter  # noqa: PLC0415  loads numpy

        return OwnLogRewriter(facts, memory_bytes=memory_bytes, secret=new_secret())

    return start
