"""``tierd check-config``: every fault of the file at once."""

import json
import os

from pydantic import JsonValue

from tierd.cli.display import answer_console
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from tierd.config import load_config
from tierd.errors import ConfigError, ConfigFault


def check_config(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """List every fault of the configuration file, each with line and column; exits with 2 when there is one.

    Example: tierd check-config --config /etc/tierd/tierd.yaml
    """
    try:
        load_config(config, os.environ)
    except ConfigError as error:
        if as_json:
            print(json.dumps({"valid": False, "faults": [_fault_json(fault) for fault in error.faults]}))
        raise
    if as_json:
        print(json.dumps({"valid": True, "faults": []}))
    else:
        answer_console().print(f"{config}: valid")


def _fault_json(fault: ConfigFault) -> dict[str, JsonValue]:
    return {"file": str(fault.file), "line": fault.line, "column": fault.column, "message": fault.message}
