"""Every fuzz target by its name."""

from tests.fuzz import decoders, logs
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (*decoders.TARGETS, *logs.TARGETS)}
