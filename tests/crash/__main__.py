"""``python -m tests.crash``: the crash simulation, seed after seed. A single seed prints every step."""

import argparse
import logging
import sys
import time
import traceback

import structlog

from tests.crash.simulation import SimulationFailedError, run_seed


def main() -> int:
    """Parse the arguments, run, count; return 1 when a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    options = parser.parse_args()
    tells = options.seeds == 1
    if not tells:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began_s, power_cuts, failed = time.monotonic(), 0, 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            power_cuts += run_seed(seed, trace=print if tells else lambda _: None).power_cuts
        except SimulationFailedError as error:
            failed += 1
            if tells:
                traceback.print_exc()
            print(error, file=sys.stderr, flush=True)
            if not options.keep_going:
                return 1
    print(f"{options.seeds} seeds, {power_cuts} power cuts, {failed} failed, {time.monotonic() - began_s:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
