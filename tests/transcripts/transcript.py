"""Transcripts: plain text that shows commands, and exactly what a core of tierd decides on them.

A core takes values and returns decisions. It opens no file and no connection, so a story of days is told in a page
and runs in milliseconds. The folder of a transcript names the core:

==============  ===============================================================================================
``leadership``  roles of the partitions on this broker (``control/partition_roles.py``)
``copying``     segments to copy, frontier, holes (``tiering/copy_plan.py``, ``tiering/copying/frontier.py``)
``expiration``  segments that leave the tier, undelete (``tiering/removing/expiring/expiration_plan.py``)
``planning``    partitions to compact or merge, groups, work orders (``pipeline/planning/``)
``cleaning``    records that a compaction keeps (``pipeline/rewriting/``)
``groups``      members of a consumer group (``serve/kafka/groups/protocol/``)
``pushing``     requests to standbys, ends of sessions (``replication/leader/pushing/push_router.py``)
``rebuild``     metadata from the objects in the bucket (``metadata/whole_store/partition_rebuild.py``)
==============  ===============================================================================================

The form is that of the datadriven tests of etcd's raft::

    # A comment.
    tier 0-99 age=8d
    tier 100-199 age=2d
    retention time=7d
    plan
    ----
    delete 0-99: retention_time, newest record 86400 s past the 604800 s of retention
    log start 100
    next plan in 5d

- A command is a name, then words, then options as ``name=value``. A command without a decision says nothing.
- ``----`` ends the commands of a block. The decisions follow, up to a blank line; ``nothing`` stands for none.
- Ages and times count from the clock of the transcript, which only ``wait`` moves.
- Units are ``ms``, ``s``, ``m``, ``h`` and ``d`` for times, ``B``, ``KiB``, ``MiB`` and ``GiB`` for sizes.

``drivers/`` has one driver for each core: the driver turns words into values of the core, and prints what the core
returns. pytest plays every transcript and shows a difference as a diff. After an intended change of a decision, write
the transcript anew and read the diff before the commit::

    python -m tests.transcripts --rewrite tests/transcripts/expiration/by_time.txt
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from tierd.errors import TierError

FOLDER: Final = Path(__file__).parent
SEPARATOR: Final = "----"
NO_DECISION: Final = "nothing"


class TranscriptError(Exception):
    """Error of a transcript that cannot be played: an unknown command, or a block without an end."""


class Command:
    """Command line: a name, words and options. A driver takes each word and option exactly once."""

    def __init__(self, line: str) -> None:
        """Parse ``line``."""
        self.name, *arguments = line.split()
        self._words = [argument for argument in arguments if "=" not in argument]
        self._options = dict(argument.split("=", 1) for argument in arguments if "=" in argument)

    def word(self) -> str:
        """Take the next word."""
        if not self._words:
            raise TranscriptError(f"{self.name} lacks a word")
        return self._words.pop(0)

    def words(self) -> list[str]:
        """Take all remaining words."""
        taken, self._words = self._words, []
        return taken

    def option(self, name: str, default: str | None = None) -> str:
        """Take an option; without a default the option is required."""
        value = self._options.pop(name, default)
        if value is None:
            raise TranscriptError(f"{self.name} lacks {name}=")
        return value

    def unknown(self) -> TranscriptError:
        """Return the error for a command that the driver does not have."""
        return TranscriptError(f"no such command: {self.name}")

    def require_all_taken(self) -> None:
        """Raise for words and options that the driver did not take: one too many, or a misspelt option.

        Raises:
            TranscriptError: names it.
        """
        left = [*self._words, *(f"{name}=" for name in self._options)]
        if left:
            raise TranscriptError(f"{self.name} does not take {', '.join(left)}")


class Driver(Protocol):
    """Translator between words and one core, for the length of one transcript."""

    def run(self, command: Command) -> Iterable[str]:
        """Carry out a command, and yield the decisions of the core, one a line."""


def play(text: str, driver: Driver, *, name: str) -> str:
    """Return the transcript with the decisions that the core makes now.

    Args:
        text: of the transcript.
        driver: fresh.
        name: of the transcript, for errors.

    Raises:
        TranscriptError: the place and the reason why the transcript cannot be played.
    """
    played: list[str] = []
    decisions: list[str] = []
    is_open, is_output = False, False
    for number, line in enumerate(text.splitlines(), 1):
        if is_output and line.strip():
            continue  # an old decision
        is_output = False
        if line == SEPARATOR:
            if not is_open:
                raise TranscriptError(f"{name}:{number}: no command stands before {SEPARATOR}")
            played += [line, *(decisions or [NO_DECISION])]
            decisions, is_open, is_output = [], False, True
            continue
        played.append(line)
        if line.strip() and not line.startswith("#"):
            is_open = True
            decisions += _decided(line, driver, place=f"{name}:{number}")
    if is_open:
        raise TranscriptError(f"{name}: the last block lacks {SEPARATOR}")
    return "\n".join(played) + "\n"


def _decided(line: str, driver: Driver, *, place: str) -> list[str]:
    command = Command(line)
    try:
        lines = list(driver.run(command))
        command.require_all_taken()
    except TierError as error:  # a refusal is a decision too
        return [f"refused: {error}"]
    except (TranscriptError, ValueError) as error:
        raise TranscriptError(f"{place}: {line}: {error}") from error
    return lines


def transcripts(cores: Iterable[str]) -> Sequence[Path]:
    """Return the transcripts of ``cores``, in the order of their names."""
    return [path for core in sorted(cores) for path in sorted((FOLDER / core).glob("*.txt"))]


def replay(path: Path, drivers: dict[str, Callable[[], Driver]]) -> tuple[str, str]:
    """Return the text of the transcript at ``path``, and the text when it is played now."""
    text = path.read_text()
    name = f"{path.parent.name}/{path.name}"
    return text, play(text, drivers[path.parent.name](), name=name)
