"""``python -m tests.replication.simulation``: push replication, seed after seed. ``--seed`` prints the steps of one."""

import argparse
import logging
import sys
import time
import traceback

import structlog

from tests.replication.simulation.simulation import PushSimulationFailedError, run_push_seed


def main() -> int:
    """Parse the arguments, run, count; return 1 when a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.replication.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one, and print its steps")
    parser.add_argument("--seeds", type=int, default=5000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if options.seed is not None:
        return _play(options.seed)
    began_s, failed, turns, sessions, appends = time.monotonic(), 0, 0, 0, 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            played = run_push_seed(seed)
        except PushSimulationFailedError as error:
            failed += 1
            print(error, file=sys.stderr, flush=True)
            if not options.keep_going:
                return 1
        else:
            turns, sessions, appends = turns + played.world.turns, sessions + played.sessions, appends + played.appends
    print(
        f"{options.seeds} seeds, {turns} turns, {sessions} sessions, {appends} batches, {failed} failed, "
        f"{time.monotonic() - began_s:.1f} s"
    )
    return 1 if failed else 0


def _play(seed: int) -> int:
    try:
        run_push_seed(seed, trace=print)
    except PushSimulationFailedError:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
