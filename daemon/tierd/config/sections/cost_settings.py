"""Prices of the tier, and the part of the file that ``tierd cost`` reads."""

from pydantic import Field

from tierd.config.section import Settings
from tierd.config.sections.remote_settings import RemoteSettings
from tierd.config.state_dir import DEFAULT_STATE_DIR
from tierd.config.values import AbsolutePath, OwnPath


class CostSettings(Settings):
    """Prices of the tier."""

    price_file: AbsolutePath | None = Field(
        None, description="YAML file of prices for tierd cost and tierd estimate; default: list prices of S3 Standard"
    )


class PricedTierSettings(Settings):
    """The use of the tier that the daemon recorded, the kind of its object store, and the prices."""

    state_dir: OwnPath = Field(DEFAULT_STATE_DIR)
    remote: RemoteSettings
    cost: CostSettings = Field(default_factory=CostSettings)
