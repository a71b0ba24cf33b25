"""``tierd check-config``: every fault of the file at once; with --online also of the services that the file names."""

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import JsonValue

from tierd.cli.failures import ExitCode
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from tierd.cli.output.display import print_table
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_json, print_line
from tierd.config import TierdConfig, config_warnings, load_config, read_masked
from tierd.errors import ConfigError, ConfigFault, SparkMissingError

if TYPE_CHECKING:
    from tierd.app import CheckStep


def check_config(
    *,
    online: Annotated[
        bool, typer.Option("--online", help="Also try log dirs, Kafka, metadata store and object store.")
    ] = False,
    policy: Annotated[
        bool, typer.Option("--policy", help="Print only the rights that the object store must grant.")
    ] = False,
    step_timeout: Annotated[
        float | None,
        typer.Option("--step-timeout", metavar="SECONDS", min=0.1, help="With --online: longest time of each step."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines", help="Print JSON at once: a line for the file, its secrets masked, and one for each step."
        ),
    ] = False,
) -> None:
    """List every fault of the configuration file, each with line and column; exits with 2 if there is one.

    If the file enables the pipeline, a missing or too old pyspark or Java is a fault, too. With --online, log
    dirs, disks, Kafka, metadata store and object store are tried step by step; test objects are removed. Exits with 1
    when a step failed, with 3 when a service cannot be reached.

    Example: tierd check-config --online
    """
    try:
        settings = load_config(config, os.environ)
    except ConfigError as error:
        answer = {"valid": False, "faults": [_fault_json(fault) for fault in error.faults]}
        if as_lines:
            print_json({**answer, **_masked_json(config)})
        elif as_json:
            print_json(answer)
        raise
    if as_lines:
        answer = {"valid": True, "faults": [], "warnings": _warnings_json(settings)}
        print_json({**answer, **_masked_json(config)}, flush=True)
    if policy:
        _print_policy(settings, config)
    elif online:
        _check_online(settings, config, as_json=as_json, as_lines=as_lines, step_timeout_s=step_timeout)
    elif as_lines:
        _check_spark(settings, config, as_json=False)
    else:
        _check_spark(settings, config, as_json=as_json)
        if as_json:
            print_json({"valid": True, "faults": [], "warnings": _warnings_json(settings)})
        else:
            print_line(f"{config}: valid")
            _print_warnings(settings)


def _check_spark(settings: TierdConfig, config: Path, *, as_json: bool) -> None:
    """Raise if the file enables the pipeline and this host cannot run it."""
    if not settings.pipeline.enabled:
        return
    from tierd.app import Deployment, require_spark, run_in_loop  # noqa: PLC0415 - the check of the file alone loads no backend

    try:
        run_in_loop(require_spark(Deployment(settings, config)))
    except SparkMissingError as error:
        if as_json:
            fault = ConfigFault(config, 0, 0, f"pipeline.enabled: {error}")
            print_json({"valid": False, "faults": [_fault_json(fault)]})
        raise


def _masked_json(config: Path) -> dict[str, JsonValue]:
    """Return what a line says of the file beside its faults; nothing if the file cannot be read, which is its fault."""
    try:
        file = read_masked(config, os.environ)
    except ConfigError:
        return {}
    return {"secrets_in_file": list(file.written), "masked": file.tree}


def _check_online(
    settings: TierdConfig, config: Path, *, as_json: bool, as_lines: bool, step_timeout_s: float | None
) -> None:
    from tierd.app import Deployment, check_online, run_in_loop  # noqa: PLC0415 - the check of the file alone loads no backend
    from tierd.cli.session import log_to_stderr  # noqa: PLC0415 - the check of the file alone needs no log

    log_to_stderr()
    on_step = _print_step if as_lines else lambda _: None
    steps = run_in_loop(check_online(Deployment(settings, config), on_step=on_step, step_timeout_s=step_timeout_s))
    outcomes = {step.outcome for step in steps}
    if as_json and not as_lines:
        listed = [asdict(step) for step in steps]
        answer = {"valid": True, "faults": [], "warnings": _warnings_json(settings)}
        print_json({**answer, "ok": outcomes == {"ok"}, "steps": listed})
    elif not as_lines:
        _print_steps(steps)
        _print_warnings(settings)
    if "unreachable" in outcomes:
        raise typer.Exit(ExitCode.UNREACHABLE)
    if "failed" in outcomes:
        raise typer.Exit(ExitCode.NO)


def _print_step(step: "CheckStep") -> None:
    print_json(asdict(step), flush=True)


def _print_steps(steps: Iterable["CheckStep"]) -> None:
    table = plain_table(("area", "step", "outcome"), (), "what was seen, and what to do next")
    for step in steps:
        seen = (step.detail, f"next: {step.next_step}") if step.next_step else step.detail
        table.add_row(step.area, step.name, step.outcome, seen)
    print_table(table)


def _print_policy(settings: TierdConfig, config: Path) -> None:
    from tierd.app import Deployment, access_policy, run_in_loop  # noqa: PLC0415 - only this option loads backends

    cluster_id = run_in_loop(Deployment(settings, config).known_cluster_id())
    print_json(access_policy(settings.remote, cluster_id=cluster_id), indent=2)


def _print_warnings(settings: TierdConfig) -> None:
    for warning in config_warnings(settings):
        print_line(f"warning: {warning}")
        print_line(f"  next: {warning.remedy}")


def _warnings_json(settings: TierdConfig) -> list[JsonValue]:
    return [{"key": each.key, "message": each.problem, "next_step": each.remedy} for each in config_warnings(settings)]


def _fault_json(fault: ConfigFault) -> dict[str, JsonValue]:
    return {"file": str(fault.file), "line": fault.line, "column": fault.column, "message": fault.message}
