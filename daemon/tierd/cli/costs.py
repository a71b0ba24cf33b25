"""An amount of money and its parts, for people and as JSON."""

from pydantic import JsonValue

from tierd.cost import Cost


def cost_parts(cost: Cost) -> str:
    """Return the parts in one line."""
    return f"storage {cost.storage:.2f}, requests {cost.requests:.2f}, traffic {cost.traffic:.2f}"


def cost_json(cost: Cost) -> dict[str, JsonValue]:
    """Return the parts and their sum."""
    return {"storage": cost.storage, "requests": cost.requests, "traffic": cost.traffic, "total": cost.total}
