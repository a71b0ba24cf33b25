"""``tierd rewrap-keys``: the data keys of encrypted segments under the active key of the ring."""

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue
from rich.text import Text

from tierd.app import rewrap_keys as rewrap
from tierd.app import run_in_loop
from tierd.cli.display import answer_console
from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionsArgument
from tierd.cli.progress import progress_line
from tierd.cli.session import begin
from tierd.config import TierdConfig
from tierd.model import TopicPartition
from tierd.remote import RewrapOutcome, RewrapResult

_PROBLEMS_SHOWN = 1000


def rewrap_keys(
    partitions: PartitionsArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Wrap the data keys of encrypted segments under remote.encryption.active_key; exits with 1 if some could not be.

    Only manifests are rewritten, never data. May run beside the daemon, and again after it was broken off.

    Example: tierd rewrap-keys --dry-run
    """
    settings = begin(config)
    wanted = [TopicPartition.parse(name) for name in partitions or []] or None
    if run_in_loop(_rewrap(settings, config, wanted, dry_run=dry_run, as_json=as_json)):
        raise typer.Exit(ExitCode.NO)


async def _rewrap(
    config: TierdConfig, config_file: Path, partitions: list[TopicPartition] | None, *, dry_run: bool, as_json: bool
) -> int:
    counts: Counter[RewrapResult] = Counter()
    problems: list[RewrapOutcome] = []
    with progress_line("rewrapping") as tell:
        async with contextlib.aclosing(rewrap(config, config_file, partitions, dry_run=dry_run)) as outcomes:
            async for outcome in outcomes:
                counts[outcome.result] += 1
                if outcome.result.is_problem and len(problems) < _PROBLEMS_SHOWN:
                    problems.append(outcome)
                tell(f"{counts.total()} manifests, {counts[RewrapResult.REWRAPPED]} rewrapped")
    if as_json:
        print(json.dumps(_as_json(config, counts, problems, dry_run=dry_run)))
    else:
        _print(counts, problems, dry_run=dry_run)
    return _problem_count(counts)


def _problem_count(counts: Counter[RewrapResult]) -> int:
    return sum(count for result, count in counts.items() if result.is_problem)


def _print(counts: Counter[RewrapResult], problems: list[RewrapOutcome], *, dry_run: bool) -> None:
    console = answer_console()
    for outcome in problems:
        console.print(Text(f"{outcome.result.value}: {outcome.problem}"), soft_wrap=True)
        console.print(Text(f"  next: {outcome.remedy}"), soft_wrap=True)
    done = "would be rewrapped" if dry_run else "rewrapped"
    print(
        f"{counts.total()} manifests: {counts[RewrapResult.REWRAPPED]} {done}, "
        f"{counts[RewrapResult.CURRENT]} under the active key already, {counts[RewrapResult.PLAIN]} not encrypted, "
        f"{_problem_count(counts)} with problems"
    )


def _as_json(
    config: TierdConfig, counts: Counter[RewrapResult], problems: list[RewrapOutcome], *, dry_run: bool
) -> dict[str, JsonValue]:
    return {
        "active_key": config.remote.encryption.active_key,
        "dry_run": dry_run,
        "manifests": counts.total(),
        **{result.value: counts[result] for result in RewrapResult},
        "problems": [
            {"key": each.key, "result": each.result.value, "problem": each.problem, "remedy": each.remedy}
            for each in problems
        ],
    }
