"""The extension point for clouds and appliances that give services an address outside the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pinnace.model.objects import Object


@runtime_checkable
class LoadBalancerProvider(Protocol):
    """Makes load balancers for services of type LoadBalancer. Both calls may come again and must not work twice."""

    async def ensure(self, service: Object, nodes: Sequence[Object]) -> Sequence[Object]:
        """Make the load balancer of a service, or bring it to how the service is now.

        Return the entries of status.loadBalancer.ingress: {"ip": ...} or {"hostname": ...}. `nodes` are the nodes that
        may be sent traffic. Raise any exception to be called again later; its text is shown in an Event.
        """

    async def delete(self, service: Object) -> None:
        """Remove the load balancer of a service, if there is one."""
