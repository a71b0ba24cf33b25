"""The client franz-go, through the program of ``franz/main.go``."""

import json

from tests.services.kafka_clients.partitions import Counts, Records, grouped, isolation_level
from tests.services.kafka_clients.programs import installed_program, run_program

PROGRAM = "franz-reader"
EXAMPLE = "franz-example"
"""The program that docs/read-endpoint.md prints."""


def read(bootstrap: str, wanted: Counts, *, committed: bool) -> Records:
    """Read partitions to the ends that the server names."""
    places = [f"{topic}:{partition}" for topic, partition in wanted]
    command = [installed_program(PROGRAM), "read", bootstrap, isolation_level(committed=committed), *places]
    return grouped([json.loads(line) for line in run_program(command).splitlines()], wanted)
