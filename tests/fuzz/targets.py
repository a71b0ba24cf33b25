"""Every fuzz target by its name."""

from tests.fuzz import (
    control_messages,
    decoders,
    endpoint_groups,
    endpoint_logins,
    endpoint_requests,
    kernels,
    logs,
    push_frames,
)
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *control_messages.TARGETS,
        *decoders.TARGETS,
        *endpoint_groups.TARGETS,
        *endpoint_logins.TARGETS,
        *endpoint_requests.TARGETS,
        *kernels.TARGETS,
        *logs.TARGETS,
        *push_frames.TARGETS,
    )
}
