"""Batches as statements: what goes together, what is tried again, and what each batch is told."""

from collections.abc import Iterator, Sequence
from typing import Final

import asyncpg

from tierd.errors import BackendUnavailableError, OutcomeUnknownError, PreconditionFailedError, TierError
from tierd.metadata.kv import postgres_errors
from tierd.metadata.kv.base import Batch, Put
from tierd.metadata.kv.grouping import WriteGroup
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
                    return postgres_errors.refused(connections.name, error)

    async def together(batches: Sequence[Batch]) -> list[TierError | None]:
        outcomes: list[TierError | None] = [None] * len(batches)
        absent = [key for batch in batches for key in _only_expected_absent(batch)]
        for number, key, actual in await (holding(absent, batches) if absent else once(batches)):
            outcomes[number] = outcomes[number] or PreconditionFailedError(key, actual)
        return outcomes

    async def once(batches: Sequence[Batch]) -> Sequence[asyncpg.Record]:
        return await connections.run(statements.apply, *_columns(batches))

    async def holding(absent: Sequence[str], batches: Sequence[Batch]) -> Sequence[asyncpg.Record]:
        """The same, while nobody else can write the keys in ``absent``; rare, and five round trips."""
        async with connections.connection() as connection:
            try:
                await connection.execute("BEGIN")
                held = await connection.fetch(statements.hold, absent)
                await connection.execute(statements.let_go, [row[0] for row in held])
                rows = await connection.fetch(statements.apply, *_columns(batches))
                await connection.execute("COMMIT")
            except asyncpg.PostgresError as error:
                if postgres_errors.is_answer(error):
                    await connection.execute("ROLLBACK")
                raise
            return rows

    return write


def _only_expected_absent(batch: Batch) -> Iterator[str]:
    """Keys that somebody else might write between the look at them and the end of the batch."""
    put = {write.key for write in batch.writes if isinstance(write, Put)}
    return (expect.key for expect in batch.expect if expect.value is None and expect.key not in put)


def _columns(batches: Sequence[Batch]) -> tuple[list[object], ...]:
    """What is expected, deleted and put, each with the number of its batch; of two writes of a key the last counts."""
    expected = [(number, expect.key, expect.value) for number, batch in enumerate(batches) for expect in batch.expect]
    writes = [
        (number, write)
        for number, batch in enumerate(batches)
        for write in {write.key: write for write in batch.writes}.values()
    ]
    deleted = [(number, write.key) for number, write in writes if not isinstance(write, Put)]
    put = [(number, write.key, write.value) for number, write in writes if isinstance(write, Put)]
    return (*_transposed(expected, 3), *_transposed(deleted, 2), *_transposed(put, 3))


def _transposed(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [[row[column] for row in rows] for column in range(width)]
