"""Settings: the base class of every section of the file."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """One section of the file: frozen, strict about its keys, accepting YAML names and Python names alike."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)
