"""Rules about the daemon: the process, its readiness and its partitions. Pure: facts in, findings out."""

import errno
import os
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tierd.cli.doctor.facts import DaemonLogFacts, DoctorFinding, Facts, ProbeFailure, ProcessFacts, Urgency
from tierd.cli.status_problems import (
    catalogue_lines,
    control_lines,
    descriptor_lines,
    grace_line,
    uncleanable_lines,
    unheld_lines,
)
from tierd.serve import (
    PartitionSummary,
    StatusAnswer,
    cause_and_remedy,
    drill_problems,
    endpoint_problems,
    push_problems,
    unprotected_line,
)

_NAMED: Final = 3  # partitions, where a finding names some
_MOST_GROUPS: Final = 10
_LONG_LAG_S: Final = 6 * 3600.0  # of the alert TierdFallsBehind in docs/operations.md
_LONG_UNPROTECTED_S: Final = 60.0  # of the alert TierdUnprotected
_FAILED_RUNS: Final = ("failed", "partly", "timed_out")
_NEXT: Final = re.compile(r"\brun tierd (verify|inspect|check-config)((?: --[a-z]+)*)(?: (/[\w./@+:-]+|[\w.-]+-\d+))?")
"""Commands in remedies that only look: verb, options, and the argument if it is one."""
_AS_ITS_USER: Final = "run this command as the user of the daemon"
_STATES: Final = {
    "T": ("it is stopped by a signal", "let it go on", "kill -CONT {pid}"),
    "t": ("a debugger holds it", "end the debugger", "cat /proc/{pid}/status"),
    "D": ("it waits for a disk or a mount", "look for a hung disk in the log of the system", "dmesg --level=err,warn"),
    "Z": ("it has ended, and its parent has not noticed", "look at its parent", "cat /proc/{pid}/status"),
}


def daemon_findings(facts: Facts) -> Iterator[DoctorFinding]:
    """Yield what the process, and the status of the daemon if it answered, show."""
    status = facts.status
    if status is None:
        yield _without_answer(facts)
        return
    if facts.liveness:
        problem = f"the daemon is stuck: {' '.join(facts.liveness.split())}"
        yield DoctorFinding(
            Urgency.NOW, "daemon", problem, "collect a bundle, then restart it", facts.systemctl("restart")
        )
    yield from _outages(facts, status)
    yield from _causes(facts, status)
    yield from _log_dirs(facts, status)
    yield from _partitions(facts, status)
    yield from _holds(facts, status)
    yield from _leadership(facts, status)
    yield from _side_work(facts, status)


def _without_answer(facts: Facts) -> DoctorFinding:
    daemon, process = facts.daemon, facts.process
    if isinstance(daemon, ProbeFailure):
        return _not_asked(facts, daemon)
    cause = daemon.failure.cause if daemon.failure is not None else "no answer"
    if daemon.is_forbidden:
        return DoctorFinding(Urgency.SOON, "daemon", cause, _AS_ITS_USER, _as_its_user(facts))
    if isinstance(process, ProcessFacts):
        why, remedy, command = _STATES.get(
            process.state, ("", "collect a bundle, then restart it", facts.systemctl("restart"))
        )
        problem = f"process {process.pid} holds the state directory and does not answer: {why or cause}"
        return DoctorFinding(Urgency.NOW, "daemon", problem, remedy, command.format(pid=process.pid))
    if daemon.failure is not None and daemon.failure.timed_out:
        return DoctorFinding(
            Urgency.NOW, "daemon", cause, "collect a bundle, then restart it", facts.systemctl("restart")
        )
    last = facts.log.exits[-1:] if isinstance(facts.log, DaemonLogFacts) else ()
    problem = "; ".join(["no daemon runs, and the tier falls behind", cause, *last])
    remedy = "find out why it ended, then start it"
    return DoctorFinding(Urgency.NOW, "daemon", problem, remedy, facts.systemctl("status"))


def _not_asked(facts: Facts, failure: ProbeFailure) -> DoctorFinding:
    problem = f"cannot be asked: {failure.cause}"
    if os.strerror(errno.EACCES) in failure.cause:
        return DoctorFinding(Urgency.SOON, "daemon", problem, _AS_ITS_USER, _as_its_user(facts))
    return DoctorFinding(Urgency.NOW, "daemon", problem, failure.remedy, facts.tierd("doctor", "--socket", "FILE"))


def _as_its_user(facts: Facts) -> str:
    user = "kafka" if facts.owner_uid is None else f"\\#{facts.owner_uid}"
    return f"sudo -u {user} {facts.tierd('doctor')}"


def _outages(facts: Facts, status: StatusAnswer) -> Iterator[DoctorFinding]:
    for outage in status.outages:
        area = service_area(str(outage.get("service", "")))
        since_ms = outage.get("since_ms")
        since = f" for {(facts.now_ms - since_ms) // 1000} s" if isinstance(since_ms, int) else ""
        problem = f"has not answered the daemon{since}: {outage.get('problem', '')}"
        command = facts.tierd("check-config", "--online")
        yield DoctorFinding(Urgency.NOW, area, problem, str(outage.get("remedy", "")), command)


def service_area(service: str) -> str:
    """Return the area of a service that a status names, such as ``object_store``, in the words of the checks."""
    return "Kafka" if service == "kafka" else service.replace("_", " ")


def _causes(facts: Facts, status: StatusAnswer) -> Iterator[DoctorFinding]:
    """Yield why the daemon is not ready, outages left out: they have findings of their own."""
    outages = [str(outage.get("problem", "")) for outage in status.outages]
    for cause in status.not_ready:
        if not any(problem and problem in cause for problem in outages):
            remedy = "wait, if the daemon has just started; else read its log"
            yield DoctorFinding(Urgency.NOW, "daemon", f"not ready: {cause}", remedy, facts.tierd("status"))


def _log_dirs(facts: Facts, status: StatusAnswer) -> Iterator[DoctorFinding]:
    for each in status.log_dirs:
        if each.problem:
            problem, remedy = f"{each.path} is offline: {each.problem}", "check the disk, the mount, and who may use it"
            yield DoctorFinding(Urgency.NOW, "log dirs", problem, remedy, shlex.join(["tierd", "inspect", each.path]))


def _partitions(facts: Facts, status: StatusAnswer) -> Iterator[DoctorFinding]:
    yield from _last_errors(facts, status)
    late = max(status.partitions, key=lambda each: each.lag_seconds, default=None)
    if late is not None and late.lag_seconds > _LONG_LAG_S:
        waits = cause_and_remedy(late.last_error, late.reason, "") or late.state
        problem = f"the oldest segment that is not in the tier is {late.lag_seconds / 3600:.1f} h old"
        yield DoctorFinding(
            Urgency.NOW, "partitions", f"{problem}, of {late.partition}: {waits}", late.remedy, facts.tierd("status")
        )
    paused = [each for each in status.partitions if each.state == "paused"]
    if paused:
        remedy = "resume them when the reason is gone"
        problem = f"{_counted(paused)} paused by a person, and copied no more"
        yield DoctorFinding(Urgency.SOON, "partitions", problem, remedy, facts.tierd("resume"))


def _last_errors(facts: Facts, status: StatusAnswer) -> Iterator[DoctorFinding]:
    """Yield a finding for each error, with the partitions that it keeps from their work; the most frequent first."""
    groups: dict[tuple[str, str, bool], list[PartitionSummary]] = defaultdict(list)
    for each in status.partitions:
        if each.last_error:
            error = each.last_error.replace(each.partition, "the partition")
            groups[error, each.remedy, each.state == "quarantined"].append(each)
    ordered = sorted(groups.items(), key=lambda group: (-group[0][2], -len(group[1])))
    for (_, remedy, is_quarantined), partitions in ordered[:_MOST_GROUPS]:
        urgency = Urgency.NOW if is_quarantined else Urgency.SOON
        problem = f"{_counted(partitions)} {'quarantined' if is_quarantined else 'failing'}: {partitions[0].last_error}"
        yield DoctorFinding(urgency, "partitions", problem, remedy, _next_command(facts, remedy, partitions))
    if len(ordered) > _MOST_GROUPS:
        problem = f"{len(ordered) - _MOST_GROUPS} more errors of partitions"
        yield DoctorFinding(Urgency.SOON, "partitions", problem, "look at the last column", facts.tierd("status"))


def _next_command(facts: Facts, remedy: str, partitions: list[PartitionSummary]) -> str:
    """Return the command that a remedy names, made whole; else the one that tries the partitions again at once."""
    found, first = _NEXT.search(remedy), partitions[0]
    if found is None:
        return facts.tierd("sync", *_names(partitions))
    verb, options, argument = found.groups(default="")
    if verb == "inspect":
        return shlex.join(["tierd", "inspect", argument or first.directory])
    if verb == "verify":
        return facts.tierd("verify", *options.split(), argument or first.partition)
    return facts.tierd("check-config", "--online")


def _names(partitions: list[PartitionSummary]) -> list[str]:
    return [each.partition for each in partitions[:_NAMED]] if len(partitions) <= _NAMED else []


def _counted(partitions: list[PartitionSummary]) -> str:
    named = ", ".join(each.partition for each in partitions[:_NAMED])
    more = f" and {len(partitions) - _NAMED} more" if len(partitions) > _NAMED else ""
    return f"{named}{more} {'is' if len(partitions) == 1 else 'are'}"


def _holds(facts: Facts, status: StatusAnswer) -> Iterator[DoctorFinding]:
    shown = facts.tierd("status", "--json")
    for line in unheld_lines(status.hold):
        remedy = (
            "raise hold.max_bytes or LimitNOFILE, or hold by links; the broker may delete them before they are copied"
        )
        yield DoctorFinding(Urgency.NOW, "holds", line, remedy, shown)
    if status.hold.descriptors:
        problem = f"{status.hold.descriptors} open files hold segments that a restart of the daemon may lose"
        remedy = "restart it only when they are copied, or hold by links"
        yield DoctorFinding(Urgency.NOTE, "holds", problem, remedy, shown)
    if line := grace_line(status.partitions):
        yield DoctorFinding(Urgency.NOTE, "retention", line, "nothing, if they should go", facts.tierd("deletions"))


def _leadership(facts: Facts, status: StatusAnswer) -> Iterator[DoctorFinding]:
    leadership, command = status.leadership, facts.tierd("check-config", "--online")
    is_out = any(outage.get("service") == "kafka" for outage in status.outages)
    if leadership.get("last_error") and not is_out:
        problem = f"the last question for leaders failed: {leadership['last_error']}"
        yield DoctorFinding(Urgency.SOON, "leadership", problem, str(leadership.get("remedy") or ""), command)
    problems = leadership.get("problems")
    for partition, why in problems.items() if isinstance(problems, dict) else ():
        remedy = "its role stays as it was; find out why the brokers do not tell its leader"
        yield DoctorFinding(Urgency.SOON, "leadership", f"{partition}: {why}", remedy, facts.tierd("status"))
    if leadership.get("topic_settings_problem") and not is_out:
        problem = f"the brokers do not tell the settings of topics: {leadership['topic_settings_problem']}"
        yield DoctorFinding(Urgency.SOON, "leadership", problem, "allow DescribeConfigs on the topics", command)
    if fenced := status.metadata.get("fenced_partitions"):
        problem = f"another leader, or another process of this node, owns {fenced} partitions that this daemon led"
        remedy = "nothing, if leadership has moved; else look for a second daemon with this node id"
        yield DoctorFinding(Urgency.SOON, "leadership", problem, remedy, facts.tierd("status"))


def _side_work(facts: Facts, status: StatusAnswer) -> Iterator[DoctorFinding]:
    """Yield what needs a person beside the copies, in the words of ``tierd status``."""
    shown = facts.tierd("status")
    check = facts.tierd("check-config", "--online")
    lines = [
        *(("catalogue", line, check) for line in catalogue_lines(status.catalogue)),
        *(("drills", line, facts.tierd("drill", "--history")) for line in drill_problems(status.drills)),
        *(("read endpoint", line, shown) for line in endpoint_problems(status.endpoint)),
        *(("push replication", line, shown) for line in push_problems(status.push)),
        *(("control plane", line, facts.tierd("peers")) for line in control_lines(status.control)),
        *(("own logs", line, shown) for line in uncleanable_lines(status.own_logs)),
        *(("limits", line, facts.systemctl("edit")) for line in descriptor_lines(status.descriptors)),
    ]
    for area, line, command in lines:
        yield DoctorFinding(Urgency.SOON, area, line, "", command)
    run = status.pipeline.last_run if status.pipeline is not None else None
    if run is not None and run.outcome in _FAILED_RUNS:
        problem = f"the last run of the pipeline ended as {run.outcome.replace('_', ' ')}"
        command = facts.tierd("compact", "--history")
        yield DoctorFinding(
            Urgency.SOON, "pipeline", problem, "read the log of the run, which the history names", command
        )
    if status.push.leader is not None and status.unprotected.seconds > _LONG_UNPROTECTED_S:
        line = unprotected_line(status.unprotected)
        yield DoctorFinding(Urgency.NOW, "push replication", line, "look at the sessions of the standbys", shown)
