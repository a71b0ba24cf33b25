"""Every fuzz target by its name."""

from tests.fuzz import decoders, kernels, logs
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (*decoders.TARGETS, *kernels.TARGETS, *logs.TARGETS)}
