"""Play transcripts, and show or write what differs: ``python -m tests.transcripts [--rewrite] [FILE ...]``."""

import argparse
import difflib
import sys
from pathlib import Path

from tests.transcripts.drivers import DRIVERS
from tests.transcripts.transcript import replay, transcripts

parser = argparse.ArgumentParser(prog="python -m tests.transcripts", description="Play transcripts of the cores.")
parser.add_argument("--rewrite", action="store_true", help="write into each file what its core decides now")
parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="transcripts; all of them by default")
arguments = parser.parse_args()

for path in arguments.files or transcripts(DRIVERS):
    before, now = replay(path.resolve(), DRIVERS)
    sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), now.splitlines(True), str(path), "now"))
    if arguments.rewrite and now != before:
        path.write_text(now)
