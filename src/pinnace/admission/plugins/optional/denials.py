"""Plug-ins that refuse what the API permits: everything, external addresses, wide anti-affinity."""

from __future__ import annotations

from pinnace.admission.chain import ALL, WRITES, AdmissionPlugin
from pinnace.model import errors
from pinnace.model.resources import Resource
from pinnace.model.typed_objects import Pod, Service
from pinnace.model.write_review import Review

_HOST = "kubernetes.io/hostname"


class AlwaysDeny(AdmissionPlugin):
    """Refuses each write and each connection to a pod, also access reviews."""

    interests = (("*", "*", ALL),)

    def reviews_unstored(self, resource: Resource) -> bool:
        return True

    def validate(self, review: Review) -> None:
        raise review.forbidden("admission control is denying all modifications")

    mutate = validate


class DenyServiceExternalIPs:
    """Refuses external IPs that a Service does not have already: they take the traffic to these addresses."""

    interests = (("", "services", WRITES),)

    def validate(self, review: Review) -> None:
        if review.subresource:
            return
        service: Service = review.changed
        addresses = service["spec"].get("externalIPs") or ()
        before = frozenset((review.old or {}).get("spec", {}).get("externalIPs") or ()) if addresses else ()
        if any(address not in before for address in addresses):
            raise review.forbidden("Use of external IPs is denied by admission control")


class LimitPodHardAntiAffinityTopology:
    """Refuses required pod anti-affinity over more than a node: such a pod keeps others out of a whole zone."""

    interests = (("", "pods", WRITES),)

    def validate(self, review: Review) -> None:
        if review.subresource:
            return
        pod: Pod = review.changed
        terms = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            if (key := term.get("topologyKey", "")) != _HOST:
                why = f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {_HOST}"
                raise errors.Forbidden(f"{why} is allowed", plural="pods", name=pod["metadata"].get("name", ""))
