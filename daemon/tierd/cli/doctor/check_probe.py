"""Probe of the configuration and of all that it names: ``tierd check-config`` in a process of its own. Blocking.

The process may hang on a disk, or fail in a library or in another package's backend: it is ended, and what it has
printed until then counts.
"""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tierd.cli.doctor.facts import CheckedStep, CheckFacts, ConfigFacts, credentials_directory
from tierd.json_parsing import parse_json
from tierd.masking import masked

_COMMAND: Final = (sys.executable, "-P", "-c", "from tierd.cli import main; main()")
_EXIT_CODES: Final = (0, 1, 2, 3)
_CLEAN_UP_S: Final = 3.0
_CREDENTIALS: Final = "CREDENTIALS_DIRECTORY"
_LONGEST_PROBLEM: Final = 500


def probe_config(
    config_file: Path,
    *,
    online: bool,
    unit: str,
    step_timeout_s: float,
    timeout_s: float,
    command: Sequence[str] = _COMMAND,
) -> CheckFacts:
    """Return what the check printed within ``timeout_s``; then it has a few seconds to remove its test objects.

    Args:
        config_file: the file.
        online: also try log dirs, stores and brokers.
        unit: of systemd; its credentials are used where this user may read them.
        step_timeout_s: longest time of each step.
        timeout_s: longest time of all.
        command: tierd.
    """
    options = ["--online", "--step-timeout", f"{step_timeout_s:g}"] if online else []
    arguments = [*command, "check-config", "--json-lines", *options, "--config", str(config_file)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        environment = {**os.environ, **_credentials_of(unit, os.environ)}
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
        is_late = _ended(process, timeout_s) is None
        problem = f"it took longer than {timeout_s:g} s" if is_late else _problem(process.returncode, err)
        out.seek(0)
        return check_facts(out.read().decode(errors="replace").splitlines(), problem=problem)


def _credentials_of(unit: str, env: Mapping[str, str]) -> dict[str, str]:
    directory = credentials_directory(unit)
    is_usable = _CREDENTIALS not in env and os.access(directory, os.R_OK | os.X_OK)
    return {_CREDENTIALS: str(directory)} if is_usable else {}


def _ended(process: "subprocess.Popen[bytes]", timeout_s: float) -> int | None:
    """Wait for the process; end it after ``timeout_s``, and return None then. One that hangs in the kernel is left."""
    for wait_s, number in ((timeout_s, signal.SIGINT), (_CLEAN_UP_S, signal.SIGKILL), (1.0, None)):
        try:
            code = process.wait(wait_s)
        except subprocess.TimeoutExpired:
            if number is not None:
                process.send_signal(number)
        else:
            return code if wait_s == timeout_s else None
    return None


def _problem(code: int, err: IO[bytes]) -> str:
    if code in _EXIT_CODES:
        return ""
    err.seek(0)
    said = err.read().decode(errors="replace").split("\n")
    last = next((line for line in reversed(said) if line.strip()), "")
    return textwrap.shorten(masked(f"it ended with {code}: {last}"), _LONGEST_PROBLEM, placeholder=" …")


def check_facts(lines: Sequence[str], *, problem: str = "") -> CheckFacts:
    """Return the facts in the lines that ``tierd check-config --json-lines`` printed."""
    objects = list(_objects(lines))
    config = next((_config_facts(each) for each in objects if "valid" in each), None)
    if config is None and not problem:
        problem = "it printed nothing about the file"
    return CheckFacts(config=config, steps=tuple(_steps(objects)), problem=problem)


def _objects(lines: Sequence[str]) -> Iterator[Mapping[str, object]]:
    for line in lines:
        try:
            parsed = parse_json(line)
        except ValueError:
            continue
        if isinstance(parsed, dict):
            yield parsed


def _config_facts(answer: Mapping[str, object]) -> ConfigFacts:
    masked_tree, names = answer.get("masked"), answer.get("secrets_in_file")
    return ConfigFacts(
        faults=tuple(_fault_text(each) for each in _dicts(answer.get("faults"))),
        warnings=tuple(
            (str(each.get("key")), str(each.get("message")), str(each.get("next_step")))
            for each in _dicts(answer.get("warnings"))
        ),
        secrets_in_file=tuple(map(str, names)) if isinstance(names, list) else (),
        masked=masked_tree if isinstance(masked_tree, dict) else {},
    )


def _fault_text(fault: Mapping[str, object]) -> str:
    place = f"{fault.get('file')}:{fault.get('line')}:{fault.get('column')}" if fault.get("line") else fault.get("file")
    return f"{place}: {fault.get('message')}"


def _dicts(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _steps(objects: Sequence[Mapping[str, object]]) -> Iterator[CheckedStep]:
    """Yield the last word about each step, in the order in which the steps began."""
    last: dict[tuple[str, str], CheckedStep] = {}
    for each in objects:
        if "area" in each:
            texts = [str(each.get(key, "")) for key in ("area", "name", "outcome", "detail", "next_step")]
            last[texts[0], texts[1]] = CheckedStep(*texts)
    yield from last.values()
