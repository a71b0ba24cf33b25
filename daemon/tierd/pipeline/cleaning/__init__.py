"""Compaction of tierd's own logs by the rules of the log cleaner, in bounded memory. No Spark, no store."""

from collections.abc import Callable

from tierd.log import RoundFacts, RoundRewriter, StartRewriting

__all__ = ["own_log_rewriting"]


def own_log_rewriting(*, memory_bytes: int, new_secret: Callable[[], bytes]) -> StartRewriting:
    """Return the function that begins each round of a log cleaner.

    Args:
        memory_bytes: for the map of a round's keys; a round with more keys than fit ends early, and the next one
            continues.
        new_secret: returns 16 fresh random bytes.
    """

    def start(facts: RoundFacts) -> RoundRewriter:
        from tierd.pipeline.cleaning.own_log_rewriter import OwnLogRewriter  # noqa: PLC0415  loads numpy

        return OwnLogRewriter(facts, memory_bytes=memory_bytes, secret=new_secret())

    return start
