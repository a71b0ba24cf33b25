"""The ``tierd`` command: which verbs there are, and how one is found.

Only the module of the verb that was named is imported, for most of them need half the daemon; ``tierd --help`` and a
mistyped verb need none of it. A module in ``commands`` has a function of its own name.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, cast

import typer

from tierd import __version__
from tierd.cli.failures import reported


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb and its line in ``tierd --help``."""

    name: str
    summary: str
    hidden: bool = False

    @property
    def function(self) -> str:
        """The function that carries it out."""
        return self.name.replace("-", "_")

    @property
    def module(self) -> str:
        """Where that function is."""
        return f"tierd.cli.commands.{self.function}"


VERBS = (
    Verb("run", "Run the daemon in the foreground."),
    Verb("check-config", "List every fault of the configuration file."),
    Verb("status", "Show what the running daemon does, and why not."),
    Verb("copy", "Copy finished segments to the tier once, then exit."),
    Verb("segments", "List the remote segments of a partition."),
    Verb("explain", "Say where a record is, and why."),
    Verb("cat", "Print records, local and remote together."),
    Verb("inspect", "Decode and check segments, indexes, checkpoints and log dirs."),
    Verb("verify", "Check the tier against its metadata."),
    Verb("pause", "Stop copying partitions until resumed."),
    Verb("resume", "Copy paused partitions again."),
    Verb("sync", "Look at partitions now, quarantined ones included."),
    Verb("demo", "Run the daemon beside a small log dir that keeps growing.", hidden=True),
)

_EXIT_CODES = (
    "Exit codes: 0 done, 1 the answer is no, 2 usage or configuration, "
    "3 a store or the daemon cannot be reached, 4 refused."
)


def main() -> None:
    """Run the command line of this process."""
    build_app(sys.argv[1:])(prog_name="tierd")


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the application, with the parameters of the verb in ``arguments``, or of all while a shell completes."""
    app = typer.Typer(
        help=f"Tiered storage beside a stock Apache Kafka broker.\n\n{_EXIT_CODES}",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    completing = "_TIERD_COMPLETE" in os.environ
    for verb in VERBS:
        function = _load(verb) if completing or verb.name == named else _unloaded
        app.command(verb.name, short_help=verb.summary, hidden=verb.hidden)(function)
    return app


def _load(verb: Verb) -> Callable[..., None]:
    module = import_module(verb.module)
    return reported(cast("Callable[..., None]", getattr(module, verb.function)))


def _unloaded() -> None:
    """Stand for a verb that was not named; never called."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tierd {__version__}")
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Carry the options that stand before a verb."""
