"""ConfigWarning: one value of a valid configuration that is seldom meant."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """One key of a valid file whose value probably does something else than its author wants."""

    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}"
