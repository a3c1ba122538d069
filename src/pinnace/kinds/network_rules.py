"""What is special about services, endpoints, ingresses and network policies."""

from pinnace.model.resources import Strategy

SERVICE = Strategy()
ENDPOINTS = Strategy()
ENDPOINT_SLICE = Strategy()
INGRESS = Strategy()
INGRESS_CLASS = Strategy()
NETWORK_POLICY = Strategy()
SERVICE_CIDR = Strategy()
IP_ADDRESS = Strategy()
