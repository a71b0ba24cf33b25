"""``tierd serve``: the read endpoint as a process of its own."""

import os
import sys
from typing import Annotated

import typer
from pydantic import ValidationError

from tierd.app import Deployment, ServeRequest, SourceRequest, run_in_loop, serve_tier
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption
from tierd.config import KafkaEndpointSettings, load_config
from tierd.telemetry import configure_logging


def serve(
    *,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            "--listen",
            metavar="PROTOCOL://HOST:PORT",
            help="Address for clients, such as PLAINTEXT://127.0.0.1:9192; may be repeated. Replaces kafka.listeners.",
        ),
    ] = None,
    archive: Annotated[
        bool,
        typer.Option(
            "--archive", help="The cluster writes no more: the end of the tier is the end of each log, and is answered."
        ),
    ] = False,
    from_bucket: Annotated[
        bool, typer.Option("--from-bucket", help="Read the metadata from the bucket, not from the metadata store.")
    ] = False,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", help="Cluster of the tier; default: that of the file.")
    ] = None,
    accept_unauthenticated: Annotated[
        bool,
        typer.Option(
            "--accept-unauthenticated", help="With --from-bucket: believe also objects without proof of the key ring."
        ),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Serve the tier to Kafka clients until SIGTERM or Ctrl-C, on a host that runs no daemon of tierd.

    Segments in log dirs of the file are served from there, if the log dirs are on this host. The metadata comes from
    the metadata store; without one that has the tier, it is read from the bucket, every ten minutes. Commits of
    consumer groups go to the metadata store; where it cannot be written, groups are refused. Beside a daemon, set
    kafka.listeners in its file instead. SIGHUP puts changed rules of access, users, quotas and certificates in force.

    Examples:
        tierd serve --listen PLAINTEXT://127.0.0.1:9192

        tierd serve --listen PLAINTEXT://127.0.0.1:9192 --archive --from-bucket --cluster-id MkU3OEVBNTcwNTJENDM2Qg
    """
    settings = load_config(config, os.environ)
    request = ServeRequest(
        endpoint=_endpoint(settings.kafka, listen or []),
        source=SourceRequest(
            cluster_id=cluster_id, from_bucket=from_bucket, accepts_unauthenticated=accept_unauthenticated
        ),
        is_final=archive,
    )
    configure_logging(format=settings.logging.format, level=settings.logging.level, stream=sys.stderr)
    exit_code = run_in_loop(serve_tier(Deployment(settings, config), request, os.environ))
    if exit_code:
        raise typer.Exit(exit_code)


def _endpoint(settings: KafkaEndpointSettings, listen: list[str]) -> KafkaEndpointSettings:
    """Return the settings with the listeners of the command line, if there are any."""
    if not listen and not settings.is_enabled:
        raise typer.BadParameter("no listener: give --listen, or set kafka.listeners in the file")
    if not listen:
        return settings
    values = {name: getattr(settings, name) for name in KafkaEndpointSettings.model_fields}
    try:
        return KafkaEndpointSettings.model_validate({**values, "listeners": tuple(listen)})
    except ValidationError as error:
        faults = "; ".join(str(fault["msg"]).removeprefix("Value error, ") for fault in error.errors())
        raise typer.BadParameter(f"--listen: {faults}") from error
