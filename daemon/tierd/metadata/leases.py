"""Leases: the right of one process among several to do a thing for a while (a metadata row with preconditions).

::

    v1/<cluster>/lease/<name>    {"holder":…,"expires_ms":…}

A lease saves work that two processes would do at once. A lease protects no data: the clocks of the holders may differ,
and a holder may sleep past the end of its lease. The claim on a partition fences double writes.
"""

import re
from dataclasses import dataclass
from typing import Final

from tierd.errors import (
    BackendUnavailableError,
    InvalidMetadataError,
    LeaseHeldError,
    LeaseLostError,
    PreconditionFailedError,
)
from tierd.metadata.kv import Batch, Delete, Expect, KeyValueStore, Put
from tierd.metadata.rows import MetadataKeyFactory, decoded_value, encode_value, int_field, text_field

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,96}")
_ATTEMPTS: Final = 5  # each time another process has changed the row in between


@dataclass(frozen=True, slots=True)
class Lease:
    """Exclusive right of one holder until a time.

    Attributes:
        name: name of the leased thing, 1 to 96 of ``A-Z a-z 0-9 . _ -``.
        holder: name of the process; different for any two processes that may ask at a time, shown as it is.
        expires_at_ms: wall clock from which on any process may take it.
    """

    name: str
    holder: str
    expires_at_ms: int


async def acquire_lease(
    store: KeyValueStore, keys: MetadataKeyFactory, name: str, holder: str, *, ttl_s: float, now_ms: int
) -> Lease:
    """Take a lease that is free, has run out, or is the holder's already, for ``ttl_s`` from ``now_ms`` on.

    Cancelled, or of unknown outcome, it may be held until then; the same call may be repeated.

    Raises:
        LeaseHeldError: another process has it; names that process and the end of its lease.
        InvalidMetadataError: a name or a holder that no lease can have.
        BackendUnavailableError: the store did not answer, or the row changes all the time.
        OutcomeUnknownError: it may or may not be held.
        MetadataDecodeError: a row that cannot be understood.
    """
    lease = Lease(name, holder, now_ms + round(ttl_s * 1000))
    key = _key(keys, lease)
    value = await store.get(key)
    for _ in range(_ATTEMPTS):
        present = None if value is None else decode_lease(key, value, name)
        if present is not None and present.holder != holder and now_ms < present.expires_at_ms:
            raise LeaseHeldError(name, present.holder, present.expires_at_ms)
        try:
            await store.apply(Batch([Put(key, encode_lease(lease))], [Expect(key, value)]))
        except PreconditionFailedError as error:
            value = error.actual
        else:
            return lease
    raise BackendUnavailableError(f"the lease {name} changed {_ATTEMPTS} times while {holder} asked for it")


async def renew_lease(
    store: KeyValueStore, keys: MetadataKeyFactory, lease: Lease, *, ttl_s: float, now_ms: int
) -> Lease:
    """Keep a lease for ``ttl_s`` from ``now_ms`` on; one that has run out is kept if it was not taken since.

    Raises:
        LeaseLostError: the lease is another holder's, or was released.
        BackendUnavailableError: the store did not answer; the lease is held as long as before.
        OutcomeUnknownError: it may or may not be held for longer; repeat it.
        MetadataDecodeError: a row that cannot be understood.
    """
    key = _key(keys, lease)
    value = await store.get(key)
    present = None if value is None else decode_lease(key, value, lease.name)
    if present is None or present.holder != lease.holder:
        raise _lost(lease, present)
    renewed = Lease(lease.name, lease.holder, now_ms + round(ttl_s * 1000))
    try:
        await store.apply(Batch([Put(key, encode_lease(renewed))], [Expect(key, value)]))
    except PreconditionFailedError as error:
        raise _lost(lease, None if error.actual is None else decode_lease(key, error.actual, lease.name)) from error
    return renewed


async def release_lease(store: KeyValueStore, keys: MetadataKeyFactory, lease: Lease) -> None:
    """Release a lease; a lease that another process has taken meanwhile stays with it.

    Raises:
        BackendUnavailableError: the store did not answer; the lease runs out by itself.
        OutcomeUnknownError: the same, or the lease is released.
        MetadataDecodeError: a row that cannot be understood.
    """
    key = _key(keys, lease)
    value = await store.get(key)
    for _ in range(_ATTEMPTS):
        if value is None or decode_lease(key, value, lease.name).holder != lease.holder:
            return
        try:
            await store.apply(Batch([Delete(key)], [Expect(key, value)]))
        except PreconditionFailedError as error:
            value = error.actual
        else:
            return
    raise BackendUnavailableError(f"the lease {lease.name} changed {_ATTEMPTS} times while it was given back")


def encode_lease(lease: Lease) -> bytes:
    """Encode a lease; its name is in the key."""
    return encode_value({"holder": lease.holder, "expires_ms": lease.expires_at_ms})


def decode_lease(key: str, value: bytes, name: str) -> Lease:
    """Decode the lease stored under ``key``.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return decoded_value(
        key, value, lambda body: Lease(name, text_field(body, "holder"), int_field(body, "expires_ms"))
    )


def _key(keys: MetadataKeyFactory, lease: Lease) -> str:
    if not _NAME.fullmatch(lease.name) or not lease.holder:
        raise InvalidMetadataError(
            f"no lease can have the name {lease.name!r} and the holder {lease.holder!r}",
            remedy="a name has 1-96 letters, digits, dots, dashes or underscores; a holder is not empty",
        )
    return keys.lease(lease.name)


def _lost(lease: Lease, present: Lease | None) -> LeaseLostError:
    now = "free" if present is None else f"held by {present.holder}"
    return LeaseLostError(
        f"the lease {lease.name} of {lease.holder} was lost: it is {now} now", remedy="acquire it again"
    )
