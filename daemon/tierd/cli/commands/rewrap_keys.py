"""``tierd rewrap-keys``: wrap the data keys of encrypted segments under the active key of the ring."""

import contextlib
from collections import Counter
from typing import Annotated

import typer
from pydantic import JsonValue

from tierd.app import Deployment, run_in_loop
from tierd.app import rewrap_keys as rewrap
from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionsArgument
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.output.progress_line import progress_line
from tierd.cli.session import begin
from tierd.model import TopicPartition
from tierd.remote import RewrapOutcome, RewrapResult

_PROBLEMS_SHOWN = 1000


def rewrap_keys(
    partitions: PartitionsArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Wrap the data keys of encrypted segments under remote.encryption.active_key; exits with 1 if one failed.

    Tombstones, log starts and reports of erasures that a key of the ring proves get tags of the active key. Data is not
    rewritten. The command may run beside the daemon. After an interruption, run it again.

    Example: tierd rewrap-keys --dry-run
    """
    deployment = Deployment(begin(config), config)
    wanted = [TopicPartition.parse(name) for name in partitions or []] or None
    if run_in_loop(_rewrap(deployment, wanted, dry_run=dry_run, as_json=as_json)):
        raise typer.Exit(ExitCode.NO)


async def _rewrap(
    deployment: Deployment, partitions: list[TopicPartition] | None, *, dry_run: bool, as_json: bool
) -> int:
    counts: Counter[RewrapResult] = Counter()
    problems: list[RewrapOutcome] = []
    manifests = 0
    with progress_line("rewrapping") as report_progress:
        async with contextlib.aclosing(rewrap(deployment, partitions, dry_run=dry_run)) as outcomes:
            async for outcome in outcomes:
                counts[outcome.result] += 1
                manifests += outcome.is_manifest
                if outcome.result.is_problem and len(problems) < _PROBLEMS_SHOWN:
                    problems.append(outcome)
                report_progress(f"{manifests} manifests, {counts[RewrapResult.REWRAPPED]} rewrapped")
    if as_json:
        print_json(_as_json(deployment, manifests, counts, problems, dry_run=dry_run))
    else:
        _print(manifests, counts, problems, dry_run=dry_run)
    return _problem_count(counts)


def _problem_count(counts: Counter[RewrapResult]) -> int:
    return sum(count for result, count in counts.items() if result.is_problem)


def _print(manifests: int, counts: Counter[RewrapResult], problems: list[RewrapOutcome], *, dry_run: bool) -> None:
    for outcome in problems:
        print_line(f"{outcome.result.value}: {outcome.problem}")
        print_line(f"  next: {outcome.remedy}")
    done = "would be rewrapped" if dry_run else "rewrapped"
    print_line(
        f"{manifests} manifests: {counts[RewrapResult.REWRAPPED]} {done}, "
        f"{counts[RewrapResult.CURRENT]} under the active key already, {counts[RewrapResult.PLAIN]} not encrypted, "
        f"{_problem_count(counts)} with problems"
    )
    if counts[RewrapResult.RETAGGED]:
        print_line(f"{counts[RewrapResult.RETAGGED]} tombstones, log starts and reports of erasures with tags as well")


def _as_json(
    deployment: Deployment,
    manifests: int,
    counts: Counter[RewrapResult],
    problems: list[RewrapOutcome],
    *,
    dry_run: bool,
) -> dict[str, JsonValue]:
    return {
        "active_key": deployment.encryption.active_key,
        "dry_run": dry_run,
        "manifests": manifests,
        **{result.value: counts[result] for result in RewrapResult},
        "problems": [
            {"key": each.key, "result": each.result.value, "problem": each.problem, "remedy": each.remedy}
            for each in problems
        ],
    }
