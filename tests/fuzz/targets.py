"""Every fuzz target by its name."""

from tests.fuzz import decoders, endpoint_logins, kernels, logs
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target for target in (*decoders.TARGETS, *endpoint_logins.TARGETS, *kernels.TARGETS, *logs.TARGETS)
}
