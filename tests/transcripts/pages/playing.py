"""A page played: its commands in their order, each with what it printed, who else runs it, or why nobody does.

The form is that of a terminal, so that a difference reads as one::

    ## Backup of the metadata

    $ sudo -u kafka tierd metadata export /backup/tierd/metadata-$(date +%F-%H).jsonl
    exported 3 partitions, 17 rows and 0 groups
    [exit code 1]

- ``> `` begins the further lines of a command.
- ``[exit code 1]`` is there for every code but 0.
- ``~ run by tests/…::test_…`` stands for a command that another test takes from the page and runs.
- ``~ not run: …`` stands for a command that cannot run in a test, with the reason.
- ``~ the daemon is stopped`` and the like stand for what ``systemctl`` does; the test does it.
- ``…`` stands for lines of the output that are left out.
- ``<time>``, ``<id>`` and the like stand for texts that vary: ``placeholders.py`` has one rule for each.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.transcripts.pages.broker_host import BrokerHost
from tests.transcripts.pages.fenced import FencedCommand, commands_of
from tests.transcripts.pages.of_pages import NOT_RUN, SCENES
from tests.transcripts.pages.placeholders import masked, without_progress
from tests.transcripts.pages.samples import difference
from tests.transcripts.pages.scenes import Scene
from tests.transcripts.pages.warm_command import PLAIN_SPARK, WarmCommand

FOLDER: Final = Path(__file__).parent
LEFT_OUT: Final = "…"
_SERVICE: Final = re.compile(r"(?:sudo )?systemctl (start|stop|restart) tierd")


class PageMismatchError(Exception):
    """Error of a page whose printed output is not what its command prints."""


def transcript_of(page: str) -> Path:
    """Return the file of the transcript of a page."""
    return FOLDER / f"{Path(page).stem.lower()}.txt"


def play(page: str, root: Path, warm: WarmCommand) -> str:
    """Run the commands of a page on a host below ``root``; return its transcript.

    Raises:
        PageMismatchError: the page shows another output.
    """
    scene = SCENES[page]
    if scene.opening is None:
        return written(page, scene, None)
    environment = {PLAIN_SPARK: str(root / "spark")} if scene.has_plain_spark else {}
    host = BrokerHost(root, warm, settings=scene.settings, environment=environment)
    with host.session():
        scene.opening(host)
        return written(page, scene, host)


def written(page: str, scene: Scene, host: BrokerHost | None) -> str:
    """Return the transcript of a page; without a host, every command is to be run elsewhere or nowhere."""
    lines, heading = [f"# {page}, played by tests/transcripts/pages"], ""
    for command in commands_of(page):
        if command.heading != heading:
            heading = command.heading
            lines += ["", f"## {heading}"]
        lines += ["", *_prompted(command.text), *_answer(command, scene, host)]
    return "\n".join(lines) + "\n"


def _prompted(text: str) -> list[str]:
    first, *others = text.splitlines()
    return [f"$ {first}", *(f"> {line}".rstrip() for line in others)]


def _answer(command: FencedCommand, scene: Scene, host: BrokerHost | None) -> Iterator[str]:
    if host is not None:
        for key in {command.text, f"{command.heading}: {command.text}"} & scene.before.keys():
            scene.before[key](host)
    runs_it = [each.test for each in scene.elsewhere if covers(each.taken(), command)]
    if runs_it:
        yield f"~ run by {runs_it[0]}"
        return
    reason = why_not_run(command, scene)
    if reason:
        yield f"~ not run: {reason}"
        return
    assert host is not None, f"{command.place}: no scene runs {command.text}"
    if service := _SERVICE.fullmatch(command.text):
        yield f"~ {host.serve(service[1])}"
        return
    yield from _printed(command, scene, host)


def _printed(command: FencedCommand, scene: Scene, host: BrokerHost) -> Iterator[str]:
    exit_code, output = host.run(scene.filled(command.text, host))
    lines = [masked(line) for line in without_progress(output.splitlines())]
    if command.printed and (problem := difference(command.printed, lines)):
        raise PageMismatchError(f"{command.place}: {problem}")
    if command.text in scene.in_any_order:
        lines.sort()
    shown = scene.shown.get(command.text)
    yield from lines if shown is None else _selected(lines, shown)
    if exit_code:
        yield f"[exit code {exit_code}]"


def _selected(lines: list[str], shown: str) -> Iterator[str]:
    is_left_out = False
    for line in lines:
        if re.search(shown, line):
            yield line
        elif not is_left_out:
            yield LEFT_OUT
        is_left_out = re.search(shown, line) is None


def why_not_run(command: FencedCommand, scene: Scene) -> str:
    """Return the reason why no test runs a command, empty for one that is to be run."""
    reasons = {**scene.not_run, **NOT_RUN, **({} if scene.opening else {_SERVICE.pattern: "needs systemd"})}
    return next((reason for pattern, reason in reasons.items() if re.match(pattern, command.text)), "")


def covers(taken: str, command: FencedCommand) -> bool:
    """Return True if a command is among those that a test takes from a page."""
    wanted, lines = _words(command.text), [words for line in taken.splitlines() if (words := _words(line))]
    count = len(command.text.splitlines())
    if count == 1:
        return wanted in lines
    parts = [words for line in command.text.splitlines() if (words := _words(line))]
    return any(lines[at : at + len(parts)] == parts for at in range(len(lines)))


def _words(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line, comments=True))
    except ValueError:  # a line of a text of several lines
        return (line.strip(),)
