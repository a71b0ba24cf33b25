"""``tierd verify``: check the tier against its metadata."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from tierd.app import Deployment, run_in_loop, tier_reader
from tierd.cli.failures import ExitCode
from tierd.cli.json_lists import printed_lines
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption, PartitionsArgument
from tierd.cli.printing import print_line
from tierd.cli.progress_line import step_line
from tierd.cli.session import begin
from tierd.model import TopicPartition
from tierd.tiering import Finding

ReportProgress = Callable[[str], None]
Shown = Callable[[AsyncIterator[Finding]], Awaitable[int]]
"""Function that prints findings as they come and returns their number."""


def verify(
    partitions: PartitionsArgument = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Download every segment and check every batch and index.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Check the tier against its metadata: gaps, overlaps, orphans, sizes, checksums; exits with 1 on findings.

    Reads only, and may run beside the daemon.

    Example: tierd verify --deep orders-0 orders-1
    """
    deployment = Deployment(begin(config), config)
    names = [TopicPartition.parse(name) for name in partitions or []]
    shown = partial(_print_json, as_object=as_object) if as_json or as_object else _print
    if run_in_loop(_verify(deployment, names, deep=deep, shown=shown)):
        raise typer.Exit(ExitCode.NO)


async def _verify(deployment: Deployment, names: Sequence[TopicPartition], *, deep: bool, shown: Shown) -> int:
    with step_line("verifying") as report_progress:
        async with (
            tier_reader(deployment) as reader,
            contextlib.aclosing(reader.verify(names, deep=deep, tell=report_progress)) as findings,
        ):
            return await shown(findings)


async def _print(findings: AsyncIterator[Finding]) -> int:
    count = 0
    async for finding in findings:
        count += 1
        print_line(f"{finding.severity.value} {finding.kind}: {finding.where}: {finding.what}")
        print_line(f"  next: {finding.remedy}")
    print_line(f"{count} findings" if count else "nothing wrong")
    return count


async def _print_json(findings: AsyncIterator[Finding], *, as_object: bool) -> int:
    count = 0
    with printed_lines(as_object=as_object) as print_item:
        async for finding in findings:
            count += 1
            print_item(asdict(finding) | {"severity": finding.severity.value})
    return count
