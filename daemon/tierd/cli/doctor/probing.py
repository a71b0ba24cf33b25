"""Probes of ``tierd doctor`` with a bound on their time, each in a thread of its own.

A thread that hangs, as on a disk that does not answer, is left behind: it ends with the process, and nothing waits for
it. A probe that fails is a result, also if a bug made it fail.
"""

import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue

from tierd.cli.doctor.facts import ProbeFailure
from tierd.errors import TierError
from tierd.masking import Masking

Probe = Callable[[], object]


def run_probes(probes: Mapping[str, Probe], *, timeout_s: float) -> dict[str, object]:
    """Run all ``probes`` at the same time; return the result of each, or a ``ProbeFailure``, after ``timeout_s``."""
    results: SimpleQueue[tuple[str, object]] = SimpleQueue()

    def run(name: str, probe: Probe) -> None:
        results.put((name, _outcome(probe)))

    for name, probe in probes.items():
        threading.Thread(target=run, args=(name, probe), name=f"probe {name}", daemon=True).start()
    found: dict[str, object] = {}
    deadline_s = time.monotonic() + timeout_s
    while len(found) < len(probes):
        try:
            name, result = results.get(timeout=max(deadline_s - time.monotonic(), 0))
        except Empty:
            break
        found[name] = result
    late = ProbeFailure(f"no answer within {timeout_s:g} s", "look for a hung disk or mount", timed_out=True)
    return {name: found.get(name, late) for name in probes}


def _outcome(probe: Probe) -> object:
    try:
        return probe()
    except TierError as error:
        return ProbeFailure(" ".join(str(error).split()), error.remedy)
    except Exception as error:  # noqa: BLE001 - the other probes go on, and the finding names the bug
        return ProbeFailure(Masking().error(error).named, "report this, with a bundle")
