"""Program ``python -m tests.services.kafka_clients BOOTSTRAP TOPIC…``: each client reads topics, in both isolations.

The records are compared with those that the first client reads, or that it reads of another server (``--expected``).
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.services.kafka_clients.java_clients import get_offsets, perf_test
from tests.services.kafka_clients.librdkafka import known_partitions, read_partitions
from tests.services.kafka_clients.partitions import Partition
from tests.services.kafka_clients.reading_clients import JAVA_CONSOLES, NAMES, Expected, ReadingClients
from tests.services.kafka_node import KafkaUnavailableError

_TIMES = ("earliest", "latest", "max-timestamp", "-4", "-5")


def main() -> int:
    """Parse the arguments, run, print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.services.kafka_clients", description=__doc__)
    parser.add_argument("bootstrap", metavar="BOOTSTRAP", help="address of the server")
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument("--expected", metavar="BOOTSTRAP", help="address of the server that has the same topics")
    parser.add_argument("--client", action="append", choices=NAMES, help="only this client; may be repeated")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as scratch, ReadingClients(Path(scratch)) as clients:
        partitions = _partitions(options.bootstrap, options.topics)
        for committed in (False, True):
            isolation = "committed" if committed else "everything"
            expected = read_partitions(options.expected or options.bootstrap, partitions, committed=committed)
            print(f"{isolation}: {sum(map(len, expected.values()))} records in {len(expected)} partitions", flush=True)
            for name in options.client or NAMES:
                failures += _try(clients, name, options.bootstrap, expected, committed=committed)
        if not options.client:
            failures += sum(_offsets(clients, version, options) for version in JAVA_CONSOLES.values())
    return 1 if failures else 0


def _partitions(bootstrap: str, topics: list[str]) -> list[Partition]:
    return sorted(partition for partition in known_partitions(bootstrap) if partition[0] in topics)


def _try(clients: ReadingClients, name: str, bootstrap: str, expected: Expected, *, committed: bool) -> bool:
    """Return True if the client has failed."""
    begun_s = time.monotonic()
    try:
        clients.client(name).assert_reads(bootstrap, expected, committed=committed)
        outcome = "equal"
    except KafkaUnavailableError as error:
        outcome = f"not installed: {error}"
    except Exception as error:  # noqa: BLE001 - the next client is tried
        outcome = f"FAILED: {str(error)[:2000]}"
    print(f"  {name:14} {time.monotonic() - begun_s:6.2f} s  {outcome}", flush=True)
    return outcome.startswith("FAILED")


def _offsets(clients: ReadingClients, version: str, options: argparse.Namespace) -> bool:
    """Print what the offset and performance tools of a version say; return True if the other server says otherwise."""
    tools, failed = clients.tools(version), False
    for topic in options.topics:
        found = {time: get_offsets(tools, options.bootstrap, topic, time) for time in _TIMES}
        print(f"  kafka-get-offsets {version} of {topic}: {found}")
        has_records = found["earliest"] != found["latest"]
        read = perf_test(tools, options.bootstrap, topic, 1, committed=False) if has_records else 0
        print(f"  kafka-consumer-perf-test {version} of {topic}: {read} records")
        if options.expected:
            wanted = {time: get_offsets(tools, options.expected, topic, time) for time in _TIMES[:3]}
            failed |= wanted != {time: found[time] for time in _TIMES[:3]}
    return failed


if __name__ == "__main__":
    sys.exit(main())
