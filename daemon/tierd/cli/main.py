"""The ``tierd`` command: which verbs there are, and how one is found.

Only the module of the verb that was named is imported, for most of them need half the daemon; ``tierd --help`` and a
mistyped verb need none of it. A module in ``commands`` has a function of its own name; the verbs of a group, as in
``tierd log append``, have a folder of their own.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperGroup

from tierd import __version__
from tierd.cli.failures import reported
from tierd.cli.printing import prepare_streams, print_line
from tierd.control_characters import visible


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb and its line in the help; ``group`` is the word before it, if any."""

    name: str
    summary: str
    hidden: bool = False
    group: str = ""

    @property
    def function(self) -> str:
        """The function that carries it out; one that would be a word of Python's has an underscore behind it."""
        return self.name.replace("-", "_") + "_" * iskeyword(self.name)

    @property
    def module(self) -> str:
        """Where that function is."""
        return ".".join(filter(None, ("tierd.cli.commands", self.group, self.function)))

    @property
    def words(self) -> list[str]:
        """What a person types after ``tierd``."""
        return [*filter(None, [self.group]), self.name]


@dataclass(frozen=True, slots=True)
class Group:
    """A word that further verbs follow."""

    name: str
    summary: str
    help: str


VERBS = (
    Verb("run", "Run the daemon in the foreground."),
    Verb("check-config", "List every fault of the configuration file."),
    Verb("status", "Show what the running daemon does, and why not."),
    Verb("pause", "Stop copying partitions until resumed."),
    Verb("resume", "Copy paused partitions again."),
    Verb("sync", "Look at partitions now, quarantined ones included."),
    Verb("copy", "Copy finished segments to the tier once, then exit."),
    Verb("segments", "List the remote segments of a partition."),
    Verb("offsets", "List the first and last offsets of both tiers, and the one of a time."),
    Verb("explain", "Say where a record is, and why."),
    Verb("cat", "Print records, local and remote together."),
    Verb("verify", "Check the tier against its metadata."),
    Verb("repair-tier", "Mend what verify found: copy again, adopt, remove."),
    Verb("rebuild-metadata", "Rebuild the metadata from the bucket alone."),
    Verb("rewrap-keys", "Wrap data keys of encrypted segments under the active key."),
    Verb("expire", "Remove from the tier what retention does not keep."),
    Verb("compact", "Compact and merge segments in the tier with Spark."),
    Verb("erase", "Erase the records of keys from the tier, and prove it."),
    Verb("undelete", "Take expired segments back while they are in their grace."),
    Verb("deletions", "List what went from the tier, and why."),
    Verb("delete-partition", "Delete the whole tier of a partition."),
    Verb("cost", "Say what the tier has cost, and what a month will."),
    Verb("estimate", "Say what tiering a log dir would cost."),
    Verb("inspect", "Decode and check segments, indexes, checkpoints and log dirs."),
    Verb("repair", "Mend a damaged partition directory; what is cut off is kept."),
    Verb("demo", "Run the daemon beside a small log dir that keeps growing.", hidden=True),
    Verb("append", "Append records from standard input.", group="log"),
    Verb("read", "Print records.", group="log"),
    Verb("roll", "Begin a new segment.", group="log"),
    Verb("truncate", "Cut off everything from an offset on.", group="log"),
    Verb("recover", "Do to a log dir what a broker does at its start and clean stop.", group="log"),
    Verb("export", "Write everything that the metadata store knows to a file.", group="metadata"),
    Verb("import", "Fill an empty metadata store from an export.", group="metadata"),
)
GROUPS = (
    Group(
        "log",
        "Write to log dirs that no broker uses: append, read, roll, truncate, recover.",
        "Work on partition directories that no broker uses: tierd's own, or those of a stopped broker.",
    ),
    Group(
        "metadata",
        "Move the metadata from one store to another: export, import.",
        "Move the metadata of a cluster from one store to another, of whatever kind; --config names the store.",
    ),
)

_UsageError: Final[Any] = typer.BadParameter.__base__  # typer has no name for the kind of all of them
_EXIT_CODES = (
    "Exit codes: 0 done, 1 the answer is no, 2 usage or configuration, "
    "3 a store or the daemon cannot be reached, 4 refused."
)


class _Verbs(TyperGroup):
    """All verbs. A usage error repeats what was typed, which a shell may have made of the names of files."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer has no public name for it
        """Take the options before the verb."""
        with _usage_errors_made_visible():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Take the rest, and carry the verb out."""
        with _usage_errors_made_visible():
            return super().invoke(ctx)


@contextmanager
def _usage_errors_made_visible() -> Iterator[None]:
    """Show control characters in the text of a usage error, which typer prints by itself, as their escapes."""
    try:
        yield
    except _UsageError as error:
        error.message = visible(error.message)
        raise


def main() -> None:
    """Run the command line of this process."""
    prepare_streams()
    build_app(sys.argv[1:])(prog_name="tierd")


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the application, with the parameters of the verb in ``arguments``, or of all while a shell completes."""
    app = typer.Typer(
        cls=_Verbs,
        help=f"Tiered storage beside a stock Apache Kafka broker.\n\n{_EXIT_CODES}",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    named = [argument for argument in arguments if not argument.startswith("-")]
    completing = "_TIERD_COMPLETE" in os.environ
    groups = {group.name: _group_app(group) for group in GROUPS}
    for verb in VERBS:
        is_named = verb.words == named[: len(verb.words)]
        function = _load(verb) if completing or is_named else _unloaded
        groups.get(verb.group, app).command(verb.name, short_help=verb.summary, hidden=verb.hidden)(function)
    for group in GROUPS:
        app.add_typer(groups[group.name], name=group.name, short_help=group.summary)
    return app


def _group_app(group: Group) -> typer.Typer:
    return typer.Typer(
        help=group.help,
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _load(verb: Verb) -> Callable[..., None]:
    module = import_module(verb.module)
    return reported(cast("Callable[..., None]", getattr(module, verb.function)))


def _unloaded() -> None:
    """Stand for a verb that was not named; never called."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"tierd {__version__}")
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Carry the options that stand before a verb."""
