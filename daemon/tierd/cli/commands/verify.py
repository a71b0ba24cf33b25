"""``tierd verify``: the tier against its metadata."""

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from tierd.app import run_in_loop, tier_reader
from tierd.cli.display import answer_console
from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from tierd.cli.session import begin
from tierd.config import TierdConfig
from tierd.model import TopicPartition
from tierd.tiering import Finding

Tell = Callable[[str], None]


def verify(
    partition: Annotated[
        str | None, typer.Argument(metavar="TP", help="A partition, topic-partition; none means all.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Download every segment and check every batch and index.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Check the tier against its metadata: gaps, overlaps, orphans, sizes, checksums; exits with 1 on findings.

    Reads only, and may run beside the daemon.

    Example: tierd verify --deep orders-0
    """
    settings = begin(config)
    name = None if partition is None else TopicPartition.parse(partition)
    findings = run_in_loop(_verify(settings, config, name, deep=deep, as_json=as_json))
    if findings:
        raise typer.Exit(ExitCode.NO)


async def _verify(
    config: TierdConfig, config_file: Path, name: TopicPartition | None, *, deep: bool, as_json: bool
) -> int:
    count = 0
    with _progress() as tell:
        async with (
            tier_reader(config, config_file) as reader,
            contextlib.aclosing(reader.verify(name, deep=deep, tell=tell)) as findings,
        ):
            count = await _print(findings, as_json=as_json)
    if not as_json:
        print(f"{count} findings" if count else "nothing wrong")
    return count


async def _print(findings: AsyncIterator[Finding], *, as_json: bool) -> int:
    console = answer_console()
    count = 0
    async for finding in findings:
        count += 1
        if as_json:
            print(json.dumps(asdict(finding) | {"severity": finding.severity.value}))
        else:
            head = f"{finding.severity.value} {finding.kind}: {finding.where}: {finding.what}"
            console.print(Text(head), soft_wrap=True)
            console.print(Text(f"  next: {finding.remedy}"), soft_wrap=True)
    return count


@contextlib.contextmanager
def _progress() -> Iterator[Tell]:
    """Say on standard error which partition is looked at: a moving line on a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty():
        yield lambda text: print(text, file=sys.stderr)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("verifying")
        yield lambda text: progress.update(task, description=text)
