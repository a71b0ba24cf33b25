"""``tierd restore release-retention``: lift the holds of topics' retention that restores have set."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import Deployment, LiftedRetention, lift_retention, run_in_loop
from tierd.cli.completion import topic_names
from tierd.cli.failures import ExitCode
from tierd.cli.moments import utc_text
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.restore_options import DryRunOption
from tierd.cli.session import begin


def release_retention(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Topics; none means all.", autocompletion=topic_names)
    ] = None,
    *,
    dry_run: DryRunOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Set the retention of topics back to the settings that they had before tierd restore held it.

    The brokers then delete what is too old or too much. A setting that was changed since the hold stays as it is. The
    exit code is 1 if a topic is held still.

    Examples:
        tierd restore release-retention --dry-run

        tierd restore release-retention orders
    """
    deployment = Deployment(begin(config), config)
    outcomes = run_in_loop(lift_retention(deployment, topics or (), is_plan=dry_run))
    if as_json:
        print_json({"dry_run": dry_run, "topics": [_as_json(each) for each in outcomes]})
    else:
        _print(outcomes, is_plan=dry_run)
    if any(each.problem is not None for each in outcomes):
        raise typer.Exit(ExitCode.NO)


def _print(outcomes: Sequence[LiftedRetention], *, is_plan: bool) -> None:
    if not outcomes:
        print_line("tierd holds the retention of no topic")
    for each in outcomes:
        topic, since = each.held.topic, utc_text(each.held.held_ms)
        if each.problem is not None:
            print_line(f"held {topic}, since {since}: {each.problem}")
            if each.problem.remedy:
                print_line(f"  next: {each.problem.remedy}")
            continue
        print_line(f"{'held' if is_plan else 'released'} {topic}, held since {since}: {_text(each.changes)}")
        if each.note:
            print_line(f"  {each.note}")


def _text(changes: Mapping[str, str | None]) -> str:
    settings = (f"{key}={'default' if value is None else value}" for key, value in changes.items())
    return ", ".join(settings) or "nothing to change"


def _as_json(outcome: LiftedRetention) -> dict[str, JsonValue]:
    return {
        "topic": outcome.held.topic,
        "cluster_id": outcome.held.cluster_id,
        "held_ms": outcome.held.held_ms,
        "changes": dict(outcome.changes),
        "note": outcome.note,
        "problem": "" if outcome.problem is None else str(outcome.problem),
        "remedy": "" if outcome.problem is None else outcome.problem.remedy,
    }
