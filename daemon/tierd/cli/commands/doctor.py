"""``tierd doctor``: what a person on call would look at, on one page, by urgency."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tierd.cli.doctor.examination import Examination, examine, run_probes
from tierd.cli.doctor.facts import DoctorFinding, Facts, ProbeFailure
from tierd.cli.doctor.report import answer, diagnose, needs_a_person, page_lines
from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, JsonOption, SocketOption
from tierd.cli.output.printing import print_json, print_line
from tierd.errors import StateDirError, TierError
from tierd.masking import Masking


def doctor(
    *,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            metavar="FILE",
            help="Also pack what was seen into a new FILE.tar.gz, without secrets, for an issue report.",
        ),
    ] = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Ask the daemon and look at this host alone: try no log dir, store or broker."),
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="The daemon's log. Without it: the journal of the unit."),
    ] = None,
    unit: Annotated[
        str, typer.Option("--unit", metavar="NAME", help="The unit of systemd that runs the daemon.")
    ] = "tierd",
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0.5, max=600, help="Longest time of each probe and step."),
    ] = 10.0,
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            metavar="FILE",
            envvar="TIERD_CONFIG",
            help="The configuration file. One that cannot be read is a finding.",
            readable=False,  # typer would end the command with a usage error
        ),
    ] = DEFAULT_CONFIG,
    socket: SocketOption = None,
    as_json: JsonOption = False,
) -> None:
    """Examine daemon, configuration, permissions, log dirs, stores, clock, limits, versions, last errors and log.

    One page has the findings by urgency, each with its cause, the next step and a command. The daemon may run, hang or
    be stopped, and stores may be down: every probe is bounded in time, and one that fails is a finding. Like
    check-config --online, it writes test objects into the stores and removes them; --offline does not.

    Exits with 0 if nothing needs a person, with 1 on findings, with 2 on a wrong command line, with 3 if the bundle
    cannot be written, and with 4 if its file exists. Notes are no findings.

    Examples:
        tierd doctor

        tierd doctor --bundle tierd-report.tar.gz

        tierd doctor --offline --json
    """
    if bundle is not None:
        _require_bundle_name(bundle)
    facts = examine(
        Examination(
            config_file=config.absolute(),
            socket=socket,
            online=not offline,
            unit=unit,
            log_file=log,
            timeout_s=timeout,
        )
    )
    findings = diagnose(facts)
    failure = None if bundle is None else _pack(bundle, facts, findings, timeout_s=timeout)
    packed = bundle if failure is None else None
    if as_json:
        print_json(answer(facts, findings, bundle=None if packed is None else str(packed)))
    else:
        for line in page_lines(facts, findings):
            print_line(line)
        if packed is not None:
            print_line(f"bundle: {packed}, without secrets; names of hosts, topics and paths are in it")
    if failure is not None:
        raise failure
    if needs_a_person(findings):
        raise typer.Exit(ExitCode.NO)


def _require_bundle_name(bundle: Path) -> None:
    from tierd.cli.doctor.bundle import require_new  # noqa: PLC0415 - of this option alone

    if not bundle.name.endswith(".tar.gz"):
        raise typer.BadParameter("--bundle names a file that ends in .tar.gz")
    require_new(bundle)


def _pack(bundle: Path, facts: Facts, findings: list[DoctorFinding], *, timeout_s: float) -> TierError | None:
    """Write the bundle; return why it could not be written, since the findings are worth printing all the same."""
    from tierd.cli.doctor.bundle import bundle_files, known_secrets, write_bundle  # noqa: PLC0415 - of this option alone

    read = partial(known_secrets, facts.config_file, os.environ)
    masking = run_probes({"secrets": read}, timeout_s=timeout_s)["secrets"]
    if not isinstance(masking, Masking):
        cause = masking.cause if isinstance(masking, ProbeFailure) else "no masks"
        return StateDirError(f"no bundle was written, since the secrets are not known: {cause}", remedy="try it again")
    try:
        write_bundle(bundle, bundle_files(facts, findings, masking), now_ms=facts.now_ms)
    except TierError as error:
        return error
    return None
