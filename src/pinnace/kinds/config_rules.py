"""What is special about config maps, secrets, quotas, limits, events, leases and other small kinds of the core."""

from pinnace.model.resources import Strategy

CONFIG_MAP = Strategy()
SECRET = Strategy()
NAMESPACE = Strategy()
NODE = Strategy()
SERVICE_ACCOUNT = Strategy()
RESOURCE_QUOTA = Strategy()
LIMIT_RANGE = Strategy()
EVENT = Strategy()
LEASE = Strategy()
LEASE_CANDIDATE = Strategy()
PRIORITY_CLASS = Strategy()
RUNTIME_CLASS = Strategy()
