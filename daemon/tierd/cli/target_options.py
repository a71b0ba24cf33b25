"""Options of the verbs that write to a live cluster, and the connection that they name."""

import os
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from tierd.config import KafkaConnectionSettings, load_config

ToOption = Annotated[
    str,
    typer.Option("--to", metavar="BOOTSTRAP", help="Brokers of the target cluster: host:port, several with commas."),
]
ToConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--to-config",
        metavar="FILE",
        help="A configuration file of tierd whose leadership.kafka has TLS and login of the target cluster.",
    ),
]
GiveUpAfterOption = Annotated[
    float,
    typer.Option("--give-up-after", min=1, metavar="SECONDS", help="Longest wait without any progress."),
]


def target_connection(bootstrap: str, config: Path | None) -> KafkaConnectionSettings:
    """Return the connection to the target.

    Raises:
        typer.BadParameter: an address is none, or the file has no ``leadership.kafka``.
        ConfigError: the file has faults.
    """
    servers = [each.strip() for each in bootstrap.split(",") if each.strip()]
    try:
        plain = KafkaConnectionSettings.model_validate({"bootstrap_servers": servers})
    except ValidationError as error:
        raise typer.BadParameter(f"{bootstrap!r}: {error.errors()[0]['msg']}", param_hint="--to") from None
    if config is None:
        return plain
    settings = load_config(config, os.environ).leadership.kafka
    if settings is None:
        raise typer.BadParameter(f"{config} has no section leadership.kafka", param_hint="--to-config")
    return settings.model_copy(update={"bootstrap_servers": plain.bootstrap_servers})
