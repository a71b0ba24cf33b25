"""A plan of repair or truncation for people and for programs (JSON: a contract, see docs)."""

from pydantic import JsonValue

from tierd.cli.output.printing import print_line
from tierd.log import CutTail, LogRepairResult, LogRepairStep, LowerCheckpoint, MoveAside, RepairPlan, WriteAnew


def print_repair(result: LogRepairResult, *, is_plan: bool, done: str = "mended") -> None:
    """Print the steps of a plan, or the steps that were done; ``done`` is the word for the outcome."""
    for line in plan_lines(result.plan, result.kept, is_plan=is_plan):
        print_line(line)
    print_line(_summary(result, is_plan=is_plan, done=done))


def plan_lines(plan: RepairPlan, kept: tuple[str | None, ...] = (), *, is_plan: bool) -> list[str]:
    """Return a line for every step, for the damage that remains, and for every note."""
    lines = []
    for at, step in enumerate(plan.steps):
        lines.append(f"{'would ' if is_plan else ''}{_verb(step, is_plan=is_plan)}: {step.why}")
        if at < len(kept) and kept[at]:
            lines.append(f"  kept: {kept[at]}")
    for left in plan.remaining:
        place = "" if left.position is None else f" at position {left.position}"
        lines.append(f"DAMAGE {left.name}{place}: {left.problem}")
        lines += [f"  next: {choice}" for choice in left.choices]
    return lines + [f"NOTE {note}" for note in plan.notes]


def as_json(result: LogRepairResult) -> dict[str, JsonValue]:
    """Return the plan and its outcome as one object."""
    plan = result.plan
    return {
        "directory": str(result.directory),
        "sound": result.is_sound and not plan.steps,
        "mended": result.is_sound and bool(plan.steps),
        "log_end_offset": plan.log_end_offset,
        "lost_from": plan.lost_from,
        "steps": [
            _step_json(step, result.kept[at] if at < len(result.kept) else None) for at, step in enumerate(plan.steps)
        ],
        "damage": [
            {"file": left.name, "position": left.position, "problem": left.problem, "choices": list(left.choices)}
            for left in plan.remaining
        ],
        "notes": list(plan.notes),
    }


def _step_json(step: LogRepairStep, kept: str | None) -> dict[str, JsonValue]:
    content: dict[str, JsonValue] = {"file": step.name, "why": step.why, "kept": kept}
    match step:
        case CutTail():
            return {"step": "cut", "position": step.position, "size_bytes": step.size_bytes, **content}
        case MoveAside():
            return {"step": "move", **content}
        case WriteAnew():
            return {"step": "write", "size_bytes": len(step.content), **content}
        case LowerCheckpoint():
            return {"step": "lower", "offset": step.offset, **content}


def _verb(step: LogRepairStep, *, is_plan: bool) -> str:
    tense = 0 if is_plan else 1
    match step:
        case CutTail():
            return f"cut {step.size_bytes} bytes off {step.name} from position {step.position} on"
        case MoveAside():
            return f"{('move', 'moved')[tense]} {step.name} aside"
        case WriteAnew():
            return f"{('write', 'wrote')[tense]} {step.name} anew, {len(step.content)} bytes"
        case LowerCheckpoint():
            return f"{('lower', 'lowered')[tense]} the partition's offset in {step.name} to {step.offset}"


def _summary(result: LogRepairResult, *, is_plan: bool, done: str) -> str:
    plan = result.plan
    if not plan.steps and result.is_sound:
        return f"{result.directory}: sound, the log ends at offset {plan.log_end_offset}"
    outcome = (
        (f"would be {done}" if is_plan else done)
        if result.is_sound
        else f"damage remains in {len(plan.remaining)} places"
    )
    return f"{result.directory}: {len(plan.steps)} steps, {outcome}, the log ends at offset {plan.log_end_offset}"
