"""Facts that the probes of ``tierd doctor`` collect on this host, and findings of the rules. Values only."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import JsonValue

from tierd.cli.options import DEFAULT_CONFIG
from tierd.serve import StatusAnswer

Tree = dict[str, JsonValue]


def credentials_directory(unit: str) -> Path:
    """Return the directory in which systemd keeps the credentials of a unit while it runs."""
    return Path("/run/credentials", f"{unit.removesuffix('.service')}.service")


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """Reason why a probe has no result, and the next step; ``timed_out`` if its time was over."""

    cause: str
    remedy: str = ""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Owner and mode of one file or directory; ``kind`` is ``file``, ``directory`` or ``other``."""

    path: Path
    kind: str
    uid: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """The configuration file, as ``tierd check-config --json-lines`` prints it.

    Attributes:
        faults: each with its place, as text.
        warnings: key, message and next step of each.
        secrets_in_file: dotted names of the secrets that stand in the file itself.
        masked: the keys of the file without secrets.
    """

    faults: tuple[str, ...] = ()
    warnings: tuple[tuple[str, str, str], ...] = ()
    secrets_in_file: tuple[str, ...] = ()
    masked: Tree = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckedStep:
    """One step of ``tierd check-config --online``; ``outcome`` is ``begun`` for one that did not end."""

    area: str
    name: str
    outcome: str
    detail: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFacts:
    """Answer of the process that checks the configuration, and with it log dirs, stores and brokers.

    Attributes:
        config: None if the process did not come so far.
        problem: why the process did not end by itself with an answer; empty if it did.
    """

    config: ConfigFacts | None = None
    steps: tuple[CheckedStep, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """The process that holds the state directory.

    Attributes:
        state: letter of the kernel, such as ``S`` (sleeping), ``T`` (stopped), ``D`` (waiting for a disk).
        uid: its user; -1 if it is not known.
        open_files_limit: soft limit of descriptors; None if it is not known.
    """

    pid: int
    state: str = ""
    uid: int = -1
    open_files_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFacts:
    """Answer of the daemon.

    Attributes:
        status: None if the daemon did not answer.
        failure: why not; None if it did.
        is_forbidden: the control socket refused this user.
    """

    status: StatusAnswer | None = None
    failure: ProbeFailure | None = None
    is_forbidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Facts of the running command and of its host.

    Attributes:
        uid: effective user of this command.
        packages: versions of the installed packages that tierd uses, by name.
        clock_synchronised: as the kernel says; None if it does not.
        inotify_watches: limit of each user; None if it is not known.
    """

    version: str
    commit: str
    uid: int
    python: str = ""
    system: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    clock_synchronised: bool | None = None
    inotify_watches: int | None = None


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event of the daemon's log: ``detail`` has the fields that say what happened."""

    level: str
    event: str
    timestamp: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonLogFacts:
    """The daemon's log of the last hour.

    Attributes:
        source: where the lines are from, such as ``the journal of tierd``.
        lines: as they are, secrets masked; the last ones.
        events: warnings and errors among them.
        exits: lines of systemd about ends of the process that no operator requested.
    """

    source: str
    lines: tuple[str, ...] = ()
    events: tuple[LogEvent, ...] = ()
    exits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Results of all probes; a ``ProbeFailure`` stands for a probe without one.

    Attributes:
        now_ms: wall clock of the examination.
        config_file: the file that was examined.
        state_dir: None if the file does not say it.
        files: configuration file, state directory and its entries.
        process: None if no process holds the state directory.
        liveness: body of ``/livez`` if it says that the daemon is stuck; empty otherwise.
    """

    now_ms: int
    config_file: Path
    state_dir: Path | None
    check: CheckFacts | ProbeFailure
    daemon: DaemonFacts | ProbeFailure
    process: ProcessFacts | ProbeFailure | None
    files: tuple[FileFacts, ...] | ProbeFailure
    host: HostFacts | ProbeFailure
    log: DaemonLogFacts | ProbeFailure
    unit: str = "tierd"
    liveness: str = ""

    @property
    def status(self) -> StatusAnswer | None:
        """Return the status of the daemon, if it answered."""
        return self.daemon.status if isinstance(self.daemon, DaemonFacts) else None

    @property
    def config(self) -> ConfigFacts | None:
        """Return the configuration file, if it was examined."""
        return self.check.config if isinstance(self.check, CheckFacts) else None

    @property
    def steps(self) -> tuple[CheckedStep, ...]:
        """Return the steps that were checked."""
        return self.check.steps if isinstance(self.check, CheckFacts) else ()

    @property
    def owner_uid(self) -> int | None:
        """Return the user who owns the state directory; None if it is not known."""
        files = () if isinstance(self.files, ProbeFailure) else self.files
        return next((each.uid for each in files if each.path == self.state_dir), None)

    def systemctl(self, verb: str) -> str:
        """Return a command of systemd for the unit of the daemon."""
        return shlex.join(["systemctl", verb, self.unit])

    def tierd(self, *words: str) -> str:
        """Return a command of tierd for this configuration, as a person types it."""
        option = [] if self.config_file == DEFAULT_CONFIG else ["--config", str(self.config_file)]
        return shlex.join(["tierd", *words, *option])


class Urgency(StrEnum):
    """Time in which a person has to act on a finding; a note asks for nothing."""

    NOW = "now"
    SOON = "soon"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One finding of the doctor.

    Attributes:
        area: a fixed word or two, such as ``object store``.
        problem: what is wrong and why, in one line.
        remedy: what to do, in one line; may be empty.
        command: the command to begin with.
    """

    urgency: Urgency
    area: str
    problem: str
    remedy: str
    command: str


def most_urgent_first(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Return findings by urgency, each once; those of equal urgency keep their order."""
    order = list(Urgency)
    return sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.urgency))
