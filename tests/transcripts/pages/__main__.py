"""Play the pages, and show or write what differs: ``python -m tests.transcripts.pages [--update] [PAGE ...]``."""

import argparse
import contextlib
import difflib
import io
import sys
import tempfile
from pathlib import Path

from tests.transcripts.pages.of_pages import SCENES
from tests.transcripts.pages.playing import play, transcript_of
from tests.transcripts.pages.warm_command import WarmCommand

parser = argparse.ArgumentParser(prog="python -m tests.transcripts.pages", description="Play commands of the pages.")
parser.add_argument("--update", action="store_true", help="write into each transcript what its page prints now")
parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as docs/install.md; all of them by default")
arguments = parser.parse_args()

with tempfile.TemporaryDirectory() as folder, WarmCommand(Path(folder)) as warm:
    for number, page in enumerate(arguments.pages or SCENES):
        with contextlib.redirect_stdout(io.StringIO()):  # the log of the writer of the demo
            played = play(page, Path(folder, f"host-{number}"), warm)
        transcript = transcript_of(page)
        told = transcript.read_text() if transcript.exists() else ""
        sys.stdout.writelines(difflib.unified_diff(told.splitlines(True), played.splitlines(True), page, "now"))
        if arguments.update and played != told:
            transcript.write_text(played)
