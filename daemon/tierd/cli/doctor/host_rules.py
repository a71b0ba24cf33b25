"""Rules about the configuration, what it names, this host and the log. Pure: facts in, findings out."""

import shlex
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tierd.cli.doctor.daemon_rules import service_area
from tierd.cli.doctor.facts import (
    CheckFacts,
    DaemonLogFacts,
    DoctorFinding,
    Facts,
    FileFacts,
    HostFacts,
    LogEvent,
    ProbeFailure,
    ProcessFacts,
    Urgency,
    credentials_directory,
)

_VITAL: Final = frozenset({"log dirs", "disks", "Kafka", "metadata store", "object store"})
_NO_CREDENTIALS: Final = "$CREDENTIALS_DIRECTORY is not set"
_FEW_OPEN_FILES: Final = 4096
_WATCHED_SHARE: Final = 0.8
_MOST_EVENTS: Final = 5
_OTHERS_READ: Final = 0o004
_OTHERS_WRITE: Final = 0o022
_OTHERS_ENTER: Final = 0o077
_UNKNOWN: Final = "unknown"


def host_findings(facts: Facts) -> Iterator[DoctorFinding]:
    """Yield what the configuration, its services, files, versions, limits, the clock and the log show."""
    yield from _configuration(facts)
    yield from _steps(facts)
    yield from _permissions(facts)
    if isinstance(facts.host, HostFacts):
        yield from _versions(facts, facts.host)
        yield from _limits(facts, facts.host)
        yield from _clock(facts.host)
    if isinstance(facts.log, DaemonLogFacts):
        yield from _log(facts, facts.log)
    yield from _failed_probes(facts)


def _configuration(facts: Facts) -> Iterator[DoctorFinding]:
    config, command = facts.config, facts.tierd("check-config")
    if config is None:
        return
    hidden = [fault for fault in config.faults if _NO_CREDENTIALS in fault]
    for fault in config.faults:
        if fault not in hidden:
            remedy = "correct the file; a running daemon keeps its settings until then"
            yield DoctorFinding(Urgency.SOON, "configuration", fault, remedy, command)
    if hidden:
        directory = shlex.quote(f"CREDENTIALS_DIRECTORY={credentials_directory(facts.unit)}")
        problem = "the secrets of the unit are not in this shell, so that stores and brokers were not tried"
        remedy = "run the command with the credentials of the running unit"
        yield DoctorFinding(
            Urgency.NOTE, "configuration", problem, remedy, f"sudo env {directory} {facts.tierd('doctor')}"
        )
    for key, message, next_step in config.warnings:
        yield DoctorFinding(Urgency.NOTE, "configuration", f"{key}: {message}", next_step, command)


def _steps(facts: Facts) -> Iterator[DoctorFinding]:
    """Yield the steps that failed; a service of which the daemon reports an outage has a finding of its own."""
    status = facts.status
    out = {service_area(str(outage.get("service", ""))) for outage in status.outages} if status is not None else set()
    command = facts.tierd("check-config", "--online")
    for step in facts.steps:
        if step.outcome != "ok" and step.area not in out:
            urgency = Urgency.NOW if step.area in _VITAL else Urgency.SOON
            detail = step.detail or "did not end"
            yield DoctorFinding(urgency, step.area, f"{step.name}: {detail}", step.next_step, command)


def _permissions(facts: Facts) -> Iterator[DoctorFinding]:
    for file in () if isinstance(facts.files, ProbeFailure) else facts.files:
        if file.path == facts.config_file:
            yield from _config_file(facts, file)
        elif file.path == facts.state_dir:
            yield from _state_dir(file)
        elif file.uid not in {facts.owner_uid, 0}:
            problem = f"{file.path} belongs to user id {file.uid}, and the daemon refuses to start with it"
            remedy = "find out who put it there; then move it away, or give it to the user of the daemon"
            yield DoctorFinding(Urgency.NOW, "permissions", problem, remedy, f"ls -ld {shlex.quote(str(file.path))}")
    if isinstance(facts.host, HostFacts) and facts.owner_uid not in {None, facts.host.uid}:
        problem = f"user id {facts.host.uid} looked, and the daemon's files belong to user id {facts.owner_uid}"
        remedy = "what the daemon may read and write was not seen: run the command as its user"
        command = f"sudo -u \\#{facts.owner_uid} {facts.tierd('doctor')}"
        yield DoctorFinding(Urgency.NOTE, "permissions", problem, remedy, command)


def _config_file(facts: Facts, file: FileFacts) -> Iterator[DoctorFinding]:
    path = shlex.quote(str(file.path))
    if file.mode & _OTHERS_WRITE:
        problem = f"{file.path} has mode {file.mode:04o}: others than its owner decide what the daemon does"
        yield DoctorFinding(Urgency.SOON, "permissions", problem, "let its owner alone write it", f"chmod go-w {path}")
    secrets = facts.config.secrets_in_file if facts.config is not None else ()
    if secrets and file.mode & _OTHERS_READ:
        problem = f"{file.path} has mode {file.mode:04o}, and secrets in it: {', '.join(secrets)}"
        remedy = "close it to other users, or move the secrets into files or credentials; change what was exposed"
        yield DoctorFinding(Urgency.SOON, "permissions", problem, remedy, f"chmod o-rwx {path}")


def _state_dir(file: FileFacts) -> Iterator[DoctorFinding]:
    path = shlex.quote(str(file.path))
    if file.kind != "directory":
        problem = f"{file.path} is no directory, so that no daemon can start"
        yield DoctorFinding(Urgency.NOW, "permissions", problem, "correct state_dir", f"ls -ld {path}")
    elif file.mode & _OTHERS_ENTER:
        problem = f"{file.path} has mode {file.mode:04o}: keys of open erasures and the control socket are in it"
        yield DoctorFinding(Urgency.SOON, "permissions", problem, "close it to other users", f"chmod 700 {path}")


def _versions(facts: Facts, host: HostFacts) -> Iterator[DoctorFinding]:
    status = facts.status
    if status is None:
        return
    commits = {host.commit, status.commit} - {"", _UNKNOWN}
    if status.version != host.version or len(commits) > 1:
        theirs = f"{status.version} ({status.commit[:12] or _UNKNOWN})"
        problem = f"the daemon is tierd {theirs}, this command {host.version} ({host.commit[:12]})"
        remedy = "restart the daemon, if tierd was upgraded; else use the command of the daemon"
        yield DoctorFinding(Urgency.SOON, "versions", problem, remedy, facts.systemctl("restart"))


def _limits(facts: Facts, host: HostFacts) -> Iterator[DoctorFinding]:
    process, status = facts.process, facts.status
    limit = process.open_files_limit if isinstance(process, ProcessFacts) else None
    if limit is not None and limit < _FEW_OPEN_FILES:
        problem = f"the daemon may open {limit} files alone, and holds and uploads need many"
        remedy = "set LimitNOFILE=65536 for the unit, and restart it"
        yield DoctorFinding(Urgency.SOON, "limits", problem, remedy, facts.systemctl("edit"))
    partitions = len(status.partitions) if status is not None else 0
    if host.inotify_watches is not None and partitions > _WATCHED_SHARE * host.inotify_watches:
        problem = f"{partitions} partitions need nearly all of the {host.inotify_watches} watches of a user (inotify)"
        command = f"sysctl fs.inotify.max_user_watches={max(4 * partitions, 65_536)}"
        yield DoctorFinding(Urgency.SOON, "limits", problem, "raise the limit, also in /etc/sysctl.d", command)


def _clock(host: HostFacts) -> Iterator[DoctorFinding]:
    if host.clock_synchronised is False:
        problem = "the kernel says that the clock of this host is not synchronised"
        remedy = "start chrony or systemd-timesyncd: stores refuse requests of a host whose clock is wrong"
        yield DoctorFinding(Urgency.NOTE, "clock", problem, remedy, "timedatectl")


def _log(facts: Facts, log: DaemonLogFacts) -> Iterator[DoctorFinding]:
    """Yield the ends of the process, and the most frequent errors and warnings of the last hour."""
    command = shlex.join(["journalctl", "-u", facts.unit, "-o", "cat", "--since", "-1h"])
    if log.exits and facts.status is not None:
        problem = f"the process of the daemon ended {len(log.exits)} times in the last hour; the last: {log.exits[-1]}"
        yield DoctorFinding(Urgency.SOON, "log", problem, "read the lines before it", command)
    for level, urgency in (("error", Urgency.SOON), ("warning", Urgency.NOTE)):
        events: dict[str, list[LogEvent]] = defaultdict(list)
        for each in log.events:
            if each.level == level:
                events[each.event].append(each)
        for name, found in sorted(events.items(), key=lambda item: -len(item[1]))[:_MOST_EVENTS]:
            last = found[-1]
            problem = f"{name}, {len(found)} times in the last hour; the last at {last.timestamp}: {last.detail}"
            yield DoctorFinding(urgency, "log", problem.rstrip(": "), f"from {log.source}", command)


def _failed_probes(facts: Facts) -> Iterator[DoctorFinding]:
    check, command = facts.check, facts.tierd("check-config", "--online")
    probes = {"configuration": facts.check, "permissions": facts.files, "limits": facts.process, "versions": facts.host}
    for area, result in probes.items():
        if isinstance(result, ProbeFailure):
            yield DoctorFinding(Urgency.SOON, area, f"could not be examined: {result.cause}", result.remedy, command)
    if isinstance(check, CheckFacts) and check.problem:
        problem = f"the check did not come to its end: {check.problem}"
        yield DoctorFinding(Urgency.SOON, "configuration", problem, "run it by itself, and see where it stays", command)
    if isinstance(facts.log, ProbeFailure):
        problem = f"the log could not be read: {facts.log.cause}"
        yield DoctorFinding(Urgency.NOTE, "log", problem, facts.log.remedy, facts.tierd("doctor", "--log", "FILE"))
