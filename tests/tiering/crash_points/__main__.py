"""``python -m tests.tiering.crash_points``: kill at every point, by operation and backend, or at one point alone.

::

    python -m tests.tiering.crash_points                                  # memory, in this process
    python -m tests.tiering.crash_points --backend sqlite delete          # as real processes
    python -m tests.services run postgres redis -- python -m tests.tiering.crash_points --backend postgres
    python -m tests.tiering.crash_points expire --at 17 --then takeover   # one point alone, with its logging
"""

import argparse
import contextlib
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from urllib.parse import urlsplit
from uuid import uuid4

from tests.services.postgres import psql
from tests.services.redis import empty_database
from tests.tiering.crash_points.operations import OPERATIONS
from tests.tiering.crash_points.orders import Order, carry_out
from tests.tiering.crash_points.world import MEMORY, SUCCESSORS

BACKENDS = ("memory", "sqlite", "postgres", "redis")


def main() -> int:
    """Parse the arguments, kill, count; return 1 if an invariant broke."""
    options = _arguments()
    successors = [options.then] if options.then else list(SUCCESSORS)
    order = Order("", MEMORY, successors, options.alternating, options.place, options.at)
    with _addresses(options.backend, options.operations or list(OPERATIONS)) as addresses:
        orders = [replace(order, operation=name, address=address) for name, address in addresses.items()]
        if options.at is not None or options.jobs == 1:
            results = [carry_out(each) for each in orders]
        else:
            with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
                results = list(pool.map(carry_out, orders))
    return 0 if all(results) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tiering.crash_points",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("operations", nargs="*", help=f"some of {', '.join(OPERATIONS)}; all without")
    parser.add_argument("--backend", choices=BACKENDS, default="memory", help="of the metadata")
    parser.add_argument("--at", type=int, help="only this point, counted as the other options count")
    parser.add_argument("--then", choices=SUCCESSORS, help="only this successor")
    parser.add_argument("--alternating", action="store_true", help="one successor after each point, in turn")
    parser.add_argument("--place", default="", help="count only points whose description contains this")
    parser.add_argument("--jobs", type=int, default=1, help="operations at a time, each in a process of its own")
    return parser.parse_args()


@contextlib.contextmanager
def _addresses(backend: str, operations: Sequence[str]) -> Iterator[dict[str, str]]:
    """Return metadata addresses for every operation; several operations run at a time."""
    match backend:
        case "postgres":
            dsn = os.environ["TIERD_TEST_POSTGRES_DSN"]
            databases = {name: f"crash_{name}_{uuid4().hex}" for name in operations}
            for database in databases.values():
                psql(dsn, f"CREATE DATABASE {database}")
            try:
                yield {name: urlsplit(dsn)._replace(path=f"/{each}").geturl() for name, each in databases.items()}
            finally:
                for database in databases.values():
                    psql(dsn, f"DROP DATABASE {database} WITH (FORCE)")
        case "redis":
            yield {name: empty_database(os.environ["TIERD_TEST_REDIS_URL"]) for name in operations}
        case "sqlite":
            yield dict.fromkeys(operations, "metadata.db")
        case _:
            yield dict.fromkeys(operations, MEMORY)


if __name__ == "__main__":
    sys.exit(main())
