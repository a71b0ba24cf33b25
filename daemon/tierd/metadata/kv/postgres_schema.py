"""The table of a metadata store in PostgreSQL, and the statements on it.

One ordered table per schema, made when it is missing. The table's comment names the format, so that a table of another
program, or of a later tierd, is never taken for ours. Values go as ``bytea``, and keys compare byte by byte
(collation ``C``), whatever the locale of the database.
"""

from dataclasses import dataclass
from typing import Final, Self

import structlog

from tierd.errors import MetadataError
from tierd.metadata.kv.postgres_connections import PostgresConnections

log = structlog.get_logger()

_FORMAT: Final = "tierd metadata, format 1"
_MAKING: Final = 0x7469657264  # "tierd": one maker at a time


@dataclass(frozen=True, slots=True)
class Statements:
    """Texts of the statements. Each is one round trip; ``hold`` and ``release`` share a transaction with an ``apply``.

    Attributes:
        get: keys to rows.
        scan: first key, and the end of the range, exclusive.
        scan_all: every row.
        apply: batches that share no key; one that removes a prefix is alone. Expected rows are locked in the order of
            their keys, then judged; a batch that was refused writes nothing and is returned with the key and the value
            found. A row that appeared or changed since the statement began makes it fail with 40001, also where it was
            expected to be absent and is put. Where it is only expected to be absent nothing is locked: see ``hold``.
        hold: makes rows where there are none, so that until the end of the transaction no other client can.
        release: removes the rows that ``hold`` made.
    """

    get: str
    scan: str
    scan_all: str
    apply: str
    hold: str
    release: str

    @classmethod
    def on(cls, table: str) -> Self:
        """Return the statements on ``table``, which is quoted already."""
        return cls(
            get=f"SELECT key, value FROM {table} WHERE key = ANY($1::text[])",
            scan=f"SELECT key, value FROM {table} WHERE key >= $1 AND key < $2 ORDER BY key",
            scan_all=f"SELECT key, value FROM {table} ORDER BY key",
            apply=_APPLY.format(table=table),
            hold=_HOLD.format(table=table),
            release=f"DELETE FROM {table} WHERE key = ANY($1::text[])",
        )


_APPLY: Final = """
WITH expected AS MATERIALIZED (
    SELECT * FROM unnest($1::int[], $2::text[], $3::bytea[], $4::bool[]) AS e (batch, key, value, present)
), locked AS MATERIALIZED (
    SELECT key, value FROM {table} WHERE key = ANY($2::text[]) ORDER BY key FOR UPDATE
), refused AS MATERIALIZED (
    SELECT e.batch, e.key, l.value FROM expected e LEFT JOIN locked l ON l.key = e.key COLLATE "C"
    WHERE CASE WHEN e.present THEN l.key IS NULL ELSE e.value IS DISTINCT FROM l.value END
), deleted AS (
    DELETE FROM {table} WHERE key = ANY(ARRAY(
        SELECT d.key FROM unnest($5::int[], $6::text[]) AS d (batch, key)
        WHERE d.batch <> ALL(ARRAY(SELECT batch FROM refused))
    ))
), removed AS (
    DELETE FROM {table} t USING unnest($10::int[], $11::text[], $12::text[]) AS r (batch, first, past)
    WHERE t.key >= r.first COLLATE "C" AND t.key < r.past COLLATE "C"
        AND t.key <> ALL($8::text[])  -- put below, which a statement cannot do to a row that it deletes
        AND r.batch <> ALL(ARRAY(SELECT batch FROM refused))
), put AS (
    INSERT INTO {table} (key, value)
    SELECT p.key, p.value FROM unnest($7::int[], $8::text[], $9::bytea[]) AS p (batch, key, value)
    WHERE p.batch <> ALL(ARRAY(SELECT batch FROM refused))
    ORDER BY p.key COLLATE "C"
    ON CONFLICT (key) DO UPDATE SET value = excluded.value
)
SELECT batch, key, value FROM refused
"""

_HOLD: Final = """
INSERT INTO {table} (key, value) SELECT a.key, '' FROM unnest($1::text[]) AS a (key) ORDER BY a.key COLLATE "C"
ON CONFLICT (key) DO NOTHING RETURNING key
"""

_DESCRIBE: Final = """
SELECT to_regclass($1) IS NOT NULL AS there, obj_description(to_regclass($1), 'pg_class') AS format,
       current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('transaction_isolation') AS isolation
"""


_MAKE: Final = """
DO $make$ BEGIN
    PERFORM pg_advisory_xact_lock({lock});  -- another broker may be about to make it
    IF to_regnamespace({schema_text}) IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
    IF to_regclass({table_text}) IS NULL THEN
        -- Room in every page, so that a partition row, which changes with each batch, stays in its page (HOT).
        CREATE TABLE {table} (key text COLLATE "C" PRIMARY KEY, value bytea NOT NULL) WITH (fillfactor = 80);
        COMMENT ON TABLE {table} IS '{format}';
    END IF;
END $make$
"""


async def prepare_table(connections: PostgresConnections, schema_name: str, *, read_only: bool) -> Statements:
    """Check the table, making it when it is missing and ``read_only`` is not set; return the statements on it.

    Raises:
        MetadataError: the table is missing with ``read_only``, not ours, or of another format; or the session does
            not keep statements apart, as behind a pooler.
        BackendUnavailableError: the server refused, or cannot be reached.
    """
    schema = '"' + schema_name.replace('"', '""') + '"'
    table, place = f"{schema}.kv", f"{connections.name} schema {schema_name}"
    (found,) = await connections.run_repeatable(_DESCRIBE, table)
    if found["isolation"] != "repeatable read":  # two brokers could both write a row that was absent
        raise MetadataError(
            f"{place}: the session is {found['isolation']}, though repeatable read was asked for",
            remedy="let the dsn name the server itself, or a pooler that keeps the settings of a session",
        )
    if not found["there"]:
        if read_only:
            remedy = "start tierd once, or correct metadata.postgres"
            raise MetadataError(f"{place}: there is no tierd metadata", remedy=remedy)
        texts = {"schema_text": _text(schema), "table_text": _text(table), "format": _FORMAT, "lock": _MAKING}
        await connections.run_repeatable(_MAKE.format(schema=schema, table=table, **texts))
        (found,) = await connections.run_repeatable(_DESCRIBE, table)
    if found["format"] != _FORMAT:
        raise MetadataError(
            f"{place}: table kv is {found['format'] or 'of another program'}, this tierd knows {_FORMAT}",
            remedy="set metadata.postgres.schema to a name of its own, or use the tierd that wrote it, or a later one",
        )
    if not read_only and "off" in {found["fsync"], found["synchronous_commit"]}:
        log.warning(
            "metadata_may_be_lost",
            store=place,
            fsync=found["fsync"],
            synchronous_commit=found["synchronous_commit"],
            remedy="set both to on: a crash of the database loses what tierd holds for durable",
        )
    return Statements.on(table)


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
