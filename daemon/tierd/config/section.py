"""Settings: the base class of every section of the file."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """One section of the file: frozen, strict about its keys, accepting YAML names and Python names alike."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    @classmethod
    def expanded(cls, value: object) -> object:
        """Return the keys that a short form of this section stands for; any other value as it is."""
        return value
