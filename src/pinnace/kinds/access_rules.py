"""What is special about roles, bindings, certificate requests and the review kinds."""

from pinnace.model.resources import Strategy

ROLE = Strategy()
ROLE_BINDING = Strategy()
CLUSTER_ROLE = Strategy()
CLUSTER_ROLE_BINDING = Strategy()
CERTIFICATE_SIGNING_REQUEST = Strategy()
CLUSTER_TRUST_BUNDLE = Strategy()
POD_CERTIFICATE_REQUEST = Strategy()
