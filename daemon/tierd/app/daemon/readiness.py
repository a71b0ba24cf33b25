"""Readiness: the causes that keep the daemon from its work at this moment, the most general cause first."""

from collections.abc import Sequence
from typing import Final

from tierd.serve import Outage

_NAMED: Final = 5  # partitions, where a cause names some


def not_ready_causes(
    *,
    outages: Sequence[Outage],
    stopping: str,
    is_reconciled: bool,
    loading: Sequence[str],
    unknown_roles: str,
    unowned_tier: str,
) -> list[str]:
    """Return why the daemon is not ready; empty when it is.

    Args:
        outages: services that do not answer. An outage is told once: what follows from it is left out.
        stopping: why the daemon stops; empty while it does not.
        is_reconciled: every log dir was scanned completely once.
        loading: partitions whose metadata was never loaded yet; empty once all were.
        unknown_roles: why the roles of partitions are not known; empty when they are.
        unowned_tier: why the prefix in the store is not proven to be this daemon's; empty when it is.
    """
    out = {outage.service for outage in outages}
    causes = [outage.headline() for outage in outages]
    if stopping:
        causes.append(f"stopping: {stopping}")
    if not is_reconciled:
        causes.append("the log dirs have not been looked at completely yet")
    elif loading:
        causes.append(f"the metadata of {len(loading)} partitions is still being loaded: {_some(loading)}")
    if unknown_roles and "kafka" not in out:
        causes.append(unknown_roles)
    if unowned_tier and not out & {"object_store", "metadata_store"}:  # a claim needs both
        causes.append(f"the tier cannot be written: {unowned_tier}")
    return causes


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
