"""``python -m tests.fuzz TARGET [--seconds N]``: search for inputs that break a decoder, guided by coverage.

An input that breaks the decoder is kept in the corpus folder of the target, and every test run replays it from then on;
without TARGET the names are listed.
"""

import argparse
import logging
import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped]  # has no stubs anywhere
import structlog

import tierd.kernels.compiled  # noqa: F401 before anything is instrumented: numba compiles the bytecode that it finds

with atheris.instrument_imports(include=["tierd"]):
    from tests.fuzz.target import CORPUS
    from tests.fuzz.targets import TARGETS

EXPLORED = Path(__file__).parents[2] / ".cache" / "fuzz"
MEMORY_LIMIT_MB = 2048
INPUT_LIMIT_S = 10


def main() -> None:
    """Parse the arguments and run; never returns."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="how long to search; 0: until it is interrupted")
    options = parser.parse_args()
    if options.target is None:
        print("\n".join(sorted(TARGETS)))
        return
    target = TARGETS[options.target]
    found = CORPUS / target.name
    found.mkdir(parents=True, exist_ok=True)
    explored = EXPLORED / target.name  # kept: the next search goes on from there
    explored.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (explored / f"seed-{number}").write_bytes(seed)
    arguments = [
        sys.argv[0],
        f"-max_total_time={options.seconds}",
        f"-timeout={INPUT_LIMIT_S}",
        f"-rss_limit_mb={MEMORY_LIMIT_MB}",
        "-max_len=65536",
        f"-artifact_prefix={found}/",
        str(explored),
        str(found),
    ]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    atheris.Setup(arguments, target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
