"""What is special about dynamically allocated devices."""

from pinnace.model.resources import Strategy

RESOURCE_CLAIM = Strategy()
RESOURCE_CLAIM_TEMPLATE = Strategy()
RESOURCE_SLICE = Strategy()
DEVICE_CLASS = Strategy()
DEVICE_TAINT_RULE = Strategy()
