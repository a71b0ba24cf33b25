"""Batches as statements: their grouping, their retries, and the outcome of each batch."""

from collections.abc import Iterator, Sequence
from typing import Final

import asyncpg

from tierd.errors import BackendUnavailableError, OutcomeUnknownError, PreconditionFailedError, TierError
from tierd.metadata.kv import postgres_errors
from tierd.metadata.kv.batch_groups import WriteGroup
from tierd.metadata.kv.key_value_store import Batch, Delete, DeletePrefix, ExpectPresent, Put, Write, end_of
from tierd.metadata.kv.postgres_connections import PostgresConnections
from tierd.metadata.kv.postgres_schema import Statements

_ATTEMPTS: Final = 20  # of a batch that others overtake; each time one of them has succeeded


def writer(connections: PostgresConnections, statements: Statements) -> WriteGroup:
    """Make the function that applies a group of batches, which share no key."""

    async def write(batches: Sequence[Batch]) -> list[TierError | None]:
        try:
            return await together(batches)
        except (BackendUnavailableError, OutcomeUnknownError) as error:
            return [error] * len(batches)
        except asyncpg.PostgresError:  # one of them may be at fault, and none shall suffer from another
            return [await alone(batch) for batch in batches]

    async def alone(batch: Batch) -> TierError | None:
        attempt = 0
        while True:
            attempt += 1
            try:
                return (await together([batch]))[0]
            except (BackendUnavailableError, OutcomeUnknownError) as error:
                return error
            except asyncpg.PostgresError as error:
                if not postgres_errors.is_retried(error) or attempt == _ATTEMPTS:
                    return postgres_errors.refused(connections.name, connections.masking, error)

    async def together(batches: Sequence[Batch]) -> list[TierError | None]:
        outcomes: list[TierError | None] = [None] * len(batches)
        absent = [key for batch in batches for key in _only_expected_absent(batch)]
        for number, key, actual in await (holding(absent, batches) if absent else once(batches)):
            outcomes[number] = outcomes[number] or PreconditionFailedError(key, actual)
        return outcomes

    async def once(batches: Sequence[Batch]) -> Sequence[asyncpg.Record]:
        return await connections.run(statements.apply, *_columns(batches))

    async def holding(absent: Sequence[str], batches: Sequence[Batch]) -> Sequence[asyncpg.Record]:
        """Apply the batches while no other client can write the keys in ``absent``; rare, and five round trips."""
        async with connections.connection() as connection:
            try:
                await connection.execute("BEGIN")
                held = await connection.fetch(statements.hold, absent)
                await connection.execute(statements.release, [row[0] for row in held])
                rows = await connection.fetch(statements.apply, *_columns(batches))
                await connection.execute("COMMIT")
            except asyncpg.PostgresError as error:
                if postgres_errors.is_answer(error):
                    await connection.execute("ROLLBACK")
                raise
            return rows

    return write


def _only_expected_absent(batch: Batch) -> Iterator[str]:
    """Yield the keys that are expected to be absent and not put: another client might write them meanwhile."""
    put = {write.key for write in batch.writes if isinstance(write, Put)}
    return (
        expect.key
        for expect in batch.expect
        if not isinstance(expect, ExpectPresent) and expect.value is None and expect.key not in put
    )


def _columns(batches: Sequence[Batch]) -> tuple[list[object], ...]:
    """Return the arguments of ``apply``: columns of what is expected, deleted, put and removed, by batch number."""
    expected = [
        (number, expect.key, None, True)
        if isinstance(expect, ExpectPresent)
        else (number, expect.key, expect.value, False)
        for number, batch in enumerate(batches)
        for expect in batch.expect
    ]
    writes = [(number, write) for number, batch in enumerate(batches) for write in _lasting(batch.writes)]
    deleted = [(number, write.key) for number, write in writes if isinstance(write, Delete)]
    put = [(number, write.key, write.value) for number, write in writes if isinstance(write, Put)]
    removed = [(n, write.prefix, end_of(write.prefix)) for n, write in writes if isinstance(write, DeletePrefix)]
    return (*_transposed(expected, 4), *_transposed(deleted, 2), *_transposed(put, 3), *_transposed(removed, 3))


def _lasting(writes: Sequence[Write]) -> list[Write]:
    """Leave out what a later write of the batch undoes: the rest has the same effect, prefixes removed first."""
    prefixes: list[DeletePrefix] = []
    last: dict[str, Put | Delete] = {}
    for write in writes:
        if isinstance(write, DeletePrefix):
            prefixes.append(write)
            last = {key: earlier for key, earlier in last.items() if not write.covers(key)}
        else:
            last[write.key] = write
    return [*prefixes, *last.values()]


def _transposed(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [[row[column] for row in rows] for column in range(width)]
