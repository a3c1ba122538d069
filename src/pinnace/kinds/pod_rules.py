"""What is special about pods and pod templates: defaults, faults and what may change."""

from pinnace.model.resources import Strategy

POD = Strategy()
POD_TEMPLATE = Strategy()
