"""``tierd verify``: check the tier against its metadata."""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tierd.app
from tierd.app import Deployment, SourceRequest, StandbyVerifyRequest, run_in_loop, tier_reader, verify_standbys
from tierd.cli.failures import ExitCode
from tierd.cli.moments import duration_s_of, utc_text
from tierd.cli.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    FromBucketOption,
    JsonObjectOption,
    JsonOption,
    PartitionsArgument,
)
from tierd.cli.output.json_lists import printed_lines
from tierd.cli.output.printing import print_line
from tierd.cli.output.progress_line import step_line
from tierd.cli.session import begin
from tierd.model import TopicPartition
from tierd.sizes import human_size
from tierd.tiering import DeepSample, Finding, Severity

if TYPE_CHECKING:
    from tierd.app import DeepCheckRound

Shown = Callable[[AsyncIterator[Finding]], Awaitable[int]]
"""Function that prints findings as they come and returns the number of those that are no notes."""


def verify(
    partitions: PartitionsArgument = None,
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Download every segment and check every batch and index.")
    ] = False,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="SHARE",
            help="With --deep: download only this share of the segments of each partition, such as 5%.",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", min=0, max=1_000_000_000, help="With --sample: another number takes other segments."
        ),
    ] = 0,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="FILE",
            help="With --deep: go on where the last check with this file ended, and note there what is checked.",
            dir_okay=False,
            resolve_path=True,
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="With --resume: begin no download after this time, such as 2h."),
    ] = None,
    standby: Annotated[
        list[Path] | None,
        typer.Option(
            "--standby",
            metavar="DIR",
            help="Compare the log dir of a standby, or a copy of it, with the tier instead; repeatable.",
            file_okay=False,
            resolve_path=True,
        ),
    ] = None,
    from_bucket: FromBucketOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Check the tier against its metadata: gaps, overlaps, orphans, sizes, checksums; exits with 1 on findings.

    With --standby the copies of standbys are compared with the tier: offsets, topic ids and leader epochs, and with
    --deep every batch. Reads only, and may run beside the daemon.

    With --resume a large tier is checked in many short runs: the next run downloads what is left, and segments that
    have changed since. Once all are checked, the next run begins anew.

    Examples:
        tierd verify --deep orders-0 orders-1

        tierd verify --deep --sample 5% --seed 7

        tierd verify --deep --resume /var/lib/tierd-check/progress --for 2h

        tierd verify --standby /srv/standby orders-0
    """
    if from_bucket and not standby:
        raise typer.BadParameter("--from-bucket belongs to --standby")
    if sample is not None and (standby or not deep):
        raise typer.BadParameter("--sample belongs to --deep, without --standby")
    if resume is not None and (standby or sample is not None or not deep):
        raise typer.BadParameter("--resume belongs to --deep, without --sample and --standby")
    if duration is not None and resume is None:
        raise typer.BadParameter("--for belongs to --resume")
    chosen = None if sample is None else DeepSample(_share_of(sample), seed=seed)
    duration_s = _seconds(duration)
    deployment = Deployment(begin(config), config)
    names = tuple(TopicPartition.parse(name) for name in partitions or [])
    shown = partial(_print_json, as_object=as_object) if as_json or as_object else _print
    if standby:
        source = SourceRequest(from_bucket=from_bucket)
        request = StandbyVerifyRequest(log_dirs=tuple(standby), names=names, deep=deep, source=source)
        faults = run_in_loop(_verify_standbys(deployment, request, shown=shown))
    elif resume is not None:
        faults = run_in_loop(_verify_round(deployment, names, resume, duration_s=duration_s, shown=shown))
    else:
        faults = run_in_loop(_verify(deployment, names, deep=chosen or deep, shown=shown))
    if faults:
        raise typer.Exit(ExitCode.NO)


def _share_of(text: str) -> float:
    """Return the share that a person wrote, as 5% or 0.05.

    Raises:
        typer.BadParameter: the text is none above 0, up to 1.
    """
    number = text.removesuffix("%")
    try:
        share = float(number) / (100 if number != text else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise typer.BadParameter(f"--sample {text}: write a share such as 5% or 0.05, above 0 and at most 100%")
    return share


def _seconds(duration: str | None) -> float:
    """Return the seconds that a person wrote; no end without a text.

    Raises:
        typer.BadParameter: the text is no duration.
    """
    seconds = math.inf if duration is None else duration_s_of(duration, "--for")
    if seconds < 0:
        raise typer.BadParameter("write a time such as 2h", param_hint="--for")
    return seconds


async def _verify(
    deployment: Deployment, names: Sequence[TopicPartition], *, deep: bool | DeepSample, shown: Shown
) -> int:
    with step_line("verifying") as report_progress:
        async with tier_reader(deployment) as reader:
            found = reader.verify(names, deep=deep, on_progress=report_progress)
            async with contextlib.aclosing(_with_sample(found, deep)) as findings:
                return await shown(findings)


async def _with_sample(found: AsyncGenerator[Finding], deep: bool | DeepSample) -> AsyncGenerator[Finding]:
    """Yield the findings, and last a note that says how much of the tier a sample was."""
    async with contextlib.aclosing(found) as findings:
        async for finding in findings:
            yield finding
    if isinstance(deep, DeepSample):
        seen = deep.statistics()
        percent = 100 * seen.taken_bytes / max(seen.size_bytes, 1)
        what = (
            f"{seen.taken_segments} of {seen.segments} segments were downloaded, {human_size(seen.taken_bytes)} "
            f"of {human_size(seen.size_bytes)} ({percent:.1f} %), chosen by seed {deep.seed}"
        )
        yield Finding(Severity.NOTE, "sample", what, "the tier", "another --seed takes other segments")


async def _verify_round(
    deployment: Deployment, names: Sequence[TopicPartition], file: Path, *, duration_s: float, shown: Shown
) -> int:
    with step_line("verifying") as report_progress:
        async with tier_reader(deployment) as reader:
            keys = reader.tier.object_keys
            partitions = sorted({str(name) for name in names})
            job = {"cluster": keys.cluster_id, "prefix": keys.prefix, "partitions": partitions}
            begin_round = partial(
                tierd.app.DeepCheckRound.in_file, file, job, clock=reader.clock, duration_s=duration_s
            )
            with await asyncio.to_thread(begin_round) as check:
                found = reader.verify(names, deep=check, on_progress=report_progress)
                async with contextlib.aclosing(_with_round(found, check)) as findings:
                    return await shown(findings)


async def _with_round(found: AsyncGenerator[Finding], check: "DeepCheckRound") -> AsyncGenerator[Finding]:
    """Yield the findings, and last a note that says how far the round is."""
    async with contextlib.aclosing(found) as findings:
        async for finding in findings:
            yield finding
    seen = await check.finish()
    what = (
        f"{seen.checked:,} of {seen.segments:,} segments were downloaded without a fault since "
        f"{utc_text(seen.begun_ms)}, {seen.checked_now:,} of them in this run"
    )
    remedy = "the next run goes on" if seen.left else "the next run begins anew"
    yield Finding(Severity.NOTE, "round", f"{what}; {seen.left:,} are left: {remedy}", "the tier", remedy)


async def _verify_standbys(deployment: Deployment, request: StandbyVerifyRequest, *, shown: Shown) -> int:
    with step_line("verifying") as report_progress:
        async with verify_standbys(deployment, request, on_progress=report_progress) as findings:
            return await shown(findings)


async def _print(findings: AsyncIterator[Finding]) -> int:
    count = 0
    async for finding in findings:
        print_line(f"{finding.severity.value} {finding.kind}: {finding.where}: {finding.what}")
        if finding.severity is not Severity.NOTE:
            count += 1
            print_line(f"  next: {finding.remedy}")
    print_line(f"{count} findings" if count else "nothing wrong")
    return count


async def _print_json(findings: AsyncIterator[Finding], *, as_object: bool) -> int:
    count = 0
    with printed_lines(as_object=as_object) as print_item:
        async for finding in findings:
            count += finding.severity is not Severity.NOTE
            print_item(asdict(finding) | {"severity": finding.severity.value})
    return count
