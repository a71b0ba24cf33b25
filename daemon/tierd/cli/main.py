"""The ``tierd`` command: the list of verbs, and the way from a verb to its module.

Only the module of the verb that was named is imported, because most modules need half the daemon; ``tierd --help`` and
a mistyped verb need none. A verb is a function of its name, in a module of that name in ``commands`` unless ``file``
names another, which close verbs share. The verbs of a group, as in ``tierd log append``, have a folder of their own.
"""

import builtins
import gc
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperGroup

from tierd.cli.completion import completed_words
from tierd.cli.failures import ExitCode, reported
from tierd.cli.output.printing import prepare_streams, print_error, print_line
from tierd.control_characters import visible


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb and its line in the help.

    Attributes:
        group: the word before the verb, if any.
        file: the module below ``commands`` that the verb shares with others; empty for one of its own.
    """

    name: str
    summary: str
    hidden: bool = False
    group: str = ""
    file: str = ""

    @property
    def function(self) -> str:
        """Return the name of the function that carries the verb out; ``_`` follows a keyword or builtin of Python."""
        is_taken = iskeyword(self.name) or hasattr(builtins, self.name)
        return self.name.replace("-", "_") + "_" * is_taken

    @property
    def module(self) -> str:
        """Return the module of that function."""
        below = self.file or ".".join(filter(None, (self.group, self.function)))
        return f"tierd.cli.commands.{below}"

    @property
    def words(self) -> list[str]:
        """Return the words that a person types after ``tierd``."""
        return [*filter(None, [self.group]), self.name]


@dataclass(frozen=True, slots=True)
class VerbGroup:
    """A word that further verbs follow."""

    name: str
    summary: str
    help: str


VERBS = (
    Verb("run", "Run the daemon in the foreground."),
    Verb("serve", "Serve the tier to Kafka clients, on a host without a daemon."),
    Verb("check-config", "List every fault of the configuration file."),
    Verb("doctor", "Examine everything that a person on call would look at."),
    Verb("status", "Show what the running daemon does, and why partitions wait."),
    Verb("top", "Show what the running daemon does a second."),
    Verb("pause", "Stop copying partitions until tierd resume.", file="copying"),
    Verb("resume", "Copy paused partitions again.", file="copying"),
    Verb("sync", "Run a pass over partitions now, also over quarantined ones.", file="copying"),
    Verb("peers", "List the daemons that announced themselves over MQTT."),
    Verb("copy", "Copy finished segments to the tier once, then exit."),
    Verb("topics", "List how much of each topic is in the tier, and how old it is."),
    Verb("segments", "List the remote segments of a partition."),
    Verb("offsets", "List the first and last offsets of both tiers, and the offset of a time."),
    Verb("explain", "Show where the record of an offset is, and why."),
    Verb("cat", "Print the records of a partition, local and remote together."),
    Verb("export", "Write topics to files: Parquet, Arrow or JSON lines."),
    Verb("groups", "List the positions of consumer groups, now or at a time."),
    Verb("drill", "Prove that partitions come back: restore them into a scratch directory."),
    Verb("verify", "Check the tier against its metadata."),
    Verb("repair-tier", "Repair what verify found: copy again, adopt, remove."),
    Verb("rebuild-metadata", "Rebuild the metadata from the bucket alone."),
    Verb("rewrap-keys", "Wrap data keys of encrypted segments under the active key."),
    Verb("expire", "Delete expired segments from the tier."),
    Verb("compact", "Compact and merge segments in the tier with Spark."),
    Verb("undelete", "Take back expired segments during their grace."),
    Verb("deletions", "List deletions from the tier, with their reasons."),
    Verb("delete-partition", "Delete the whole tier of a partition."),
    Verb("cost", "Show what the tier has cost, and what a month will cost."),
    Verb("estimate", "Show what tiering a log dir would cost."),
    Verb("inspect", "Decode and check segments, indexes, checkpoints and log dirs."),
    Verb("repair", "Repair a damaged partition directory; parts that are cut off are kept."),
    Verb("demo", "Run the daemon beside a small log dir that keeps growing.", hidden=True),
    Verb("man-pages", "Write the man pages, for packages.", hidden=True),
    Verb("append", "Append records from standard input.", group="log"),
    Verb("read", "Print records.", group="log"),
    Verb("roll", "Begin a new segment.", group="log"),
    Verb("truncate", "Cut off all records from an offset on.", group="log"),
    Verb("recover", "Load and close a log dir, as a broker does at its start and clean stop.", group="log"),
    Verb("request", "File a request to erase the records of keys.", group="erase"),
    Verb(
        "list", "List the requests, and the condition that each request waits for.", group="erase", file="erase.reports"
    ),
    Verb("status", "Show the report of a request, which is the proof.", group="erase", file="erase.reports"),
    Verb("attest", "State that a store keeps no older versions of objects.", group="erase", file="erase.changes"),
    Verb("withdraw", "Cancel a request.", group="erase", file="erase.changes"),
    Verb("step", "Take the next steps of open requests.", group="erase", file="erase.changes"),
    Verb("partition", "Put partitions back into a log dir.", group="restore", file="restore.log_dir"),
    Verb("log-dir", "Put all partitions of the tier back into a log dir.", group="restore"),
    Verb("store", "Fill state stores from their changelogs.", group="restore"),
    Verb("topic", "Send topics of the tier into a live cluster.", group="restore"),
    Verb("groups", "Set the positions of consumer groups in a live cluster.", group="restore"),
    Verb("release-retention", "Lift the holds of topics' retention.", group="restore"),
    Verb("release", "Let the clients go that the quarantine holds back.", group="endpoint", file="endpoint.quarantine"),
    Verb("hold", "Hold the clients of the quarantine back again.", group="endpoint", file="endpoint.quarantine"),
    Verb("hash-password", "Print the hashes of a password, for the configuration file.", group="endpoint"),
    Verb("export", "Write all rows of the metadata store to a file.", group="metadata", file="metadata"),
    Verb("import", "Fill an empty metadata store from an export.", group="metadata", file="metadata"),
)
GROUPS = (
    VerbGroup(
        "endpoint",
        "Work on the read endpoint: release, hold, hash-password.",
        "Work on the read endpoint, at which any Kafka client reads the tier.",
    ),
    VerbGroup(
        "erase",
        "Erase the records of keys from the tier, and prove it: request, list, status, attest, withdraw, step.",
        "Erase the records of keys from the tier of a partition, and prove it.",
    ),
    VerbGroup(
        "log",
        "Write to log dirs that no broker uses: append, read, roll, truncate, recover.",
        "Work on partition directories that no broker uses: tierd's own, or those of a stopped broker.",
    ),
    VerbGroup(
        "metadata",
        "Move the metadata from one store to another: export, import.",
        "Move the metadata of a cluster from one store to another of any kind; --config names the store.",
    ),
    VerbGroup(
        "restore",
        "Restore what is in the tier: partition, log-dir, store, topic, groups, release-retention.",
        "Restore what is in the tier after the loss of a disk, a broker or a cluster.",
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


_ERASE_VERB_OF = {
    "--list": "list",
    "--report": "status",
    "--cancel": "withdraw",
    "--attest": "attest",
    "--step": "step",
    "--key": "request",
    "--key-base64": "request",
    "--keys-file": "request",
}
_OF_ONE_REQUEST = ("status", "withdraw", "attest")


def main() -> None:
    """Run the command line of this process."""
    prepare_streams()
    if new := new_spelling(sys.argv[1:]):
        print_error("tierd: erase is a group of verbs")
        print_error(f"  next: {shlex.join(['tierd', *new])}")
        sys.exit(int(ExitCode.USAGE))
    with _collection_put_off():
        app = build_app(sys.argv[1:])
    app(prog_name="tierd")


@contextmanager
def _collection_put_off() -> Iterator[None]:
    """Import without the garbage collector, which would walk through what was imported again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # modules stay until the end: no later collection looks at them
        gc.enable()


def new_spelling(arguments: Sequence[str]) -> list[str]:
    """Return the present spelling of ``erase`` with options in the place of verbs; empty for other arguments."""
    if arguments[:1] != ["erase"] or (arguments[1:2] and arguments[1] in _names_in("erase")):
        return []
    rest = list(arguments[1:])
    for at, argument in enumerate(rest):
        name, _, value = argument.partition("=")
        verb = _ERASE_VERB_OF.get(name)
        if verb == "request":
            return ["erase", verb, *rest]
        if verb is not None and verb not in _OF_ONE_REQUEST:
            return ["erase", verb, *rest[:at], *rest[at + 1 :]]
        if verb is not None:
            request_id = [value] if value else rest[at + 1 : at + 2]
            return ["erase", verb, *request_id, *rest[:at], *rest[at + (1 if value else 2) :]]
    return []


def _names_in(group: str) -> set[str]:
    return {verb.name for verb in VERBS if verb.group == group}


def build_app(arguments: Sequence[str], *, load_all: bool = False) -> typer.Typer:
    """Return the application, with the parameters of the verb in ``arguments``, or in the words that a shell completes.

    With ``load_all`` every verb has its parameters.
    """
    app = typer.Typer(
        cls=_Verbs,
        help=f"Tiered storage beside a stock Apache Kafka broker.\n\n{_EXIT_CODES}",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    words = arguments or completed_words(os.environ)
    named = [word for word in words if not word.startswith("-")]
    groups = {group.name: _group_app(group) for group in GROUPS}
    for verb in VERBS:
        is_named = load_all or verb.words == named[: len(verb.words)]
        function = _load(verb) if is_named else _unloaded
        groups.get(verb.group, app).command(verb.name, short_help=verb.summary, hidden=verb.hidden)(function)
    for group in GROUPS:
        app.add_typer(groups[group.name], name=group.name, short_help=group.summary)
    return app


def _group_app(group: VerbGroup) -> typer.Typer:
    return typer.Typer(
        help=group.help,
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _load(verb: Verb) -> Callable[..., None]:
    with _rich_hidden():
        module = import_module(verb.module)
    return reported(cast("Callable[..., None]", getattr(module, verb.function)))


@contextmanager
def _rich_hidden() -> Iterator[None]:
    """Let imports of rich fail: structlog imports it where it is installed, for tracebacks that tierd never prints."""
    if "rich" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # the mark of a module that cannot be imported
    try:
        yield
    finally:
        del sys.modules["rich"]


def _unloaded() -> None:
    """Stand in for a verb that was not named."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from tierd.version import __version__, read_build  # noqa: PLC0415 - of this option alone

        print_line(f"tierd {__version__} ({read_build()})")
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Carry the options that stand before a verb."""
