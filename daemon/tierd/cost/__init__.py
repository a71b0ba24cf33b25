"""Costs of the tier: usage hour by hour, priced; and an estimate before anything is switched on."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.cost.billed_requests import IN_A_PUT, RequestClass
    from tierd.cost.cost_estimate import Bound, Plan, TopicEstimate, estimate_log_dirs, reading_cost
    from tierd.cost.prices import FREE, PriceList, load_prices, thaw_offers
    from tierd.cost.report import Cost, CostReport, TopicCost, cost_report
    from tierd.cost.usage_ledger import HOUR_MS, OTHER_TOPIC, Usage, UsageLedger
else:
    __getattr__ = exports_on_demand(__name__)
