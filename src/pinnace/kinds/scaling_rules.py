"""What is special about autoscalers and disruption budgets."""

from pinnace.model.resources import Strategy

HORIZONTAL_POD_AUTOSCALER = Strategy()
POD_DISRUPTION_BUDGET = Strategy()
