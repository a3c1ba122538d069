"""How often Kubernetes validates metadata on an update, and so how often it returns each error.

Every update is checked once, alone and against the old object; most kinds then check again. A word spells these rounds:
f for the metadata alone, u against the old object. In lower case, finalizers must have a domain.
"""

from __future__ import annotations

_USUAL = "u"
_ROUNDS = {
    "uf": (
        "/configmaps /endpoints /persistentvolumeclaims /pods /secrets /serviceaccounts apps/controllerrevisions "
        "networking.k8s.io/ingressclasses networking.k8s.io/ingresses storage.k8s.io/volumeattributesclasses"
    ),
    "fu": (
        "/namespaces /nodes batch/jobs certificates.k8s.io/certificatesigningrequests networking.k8s.io/ipaddresses "
        "rbac.authorization.k8s.io/clusterrolebindings "
        "rbac.authorization.k8s.io/clusterroles rbac.authorization.k8s.io/rolebindings rbac.authorization.k8s.io/roles "
        "resource.k8s.io/deviceclasses resource.k8s.io/resourceclaims resource.k8s.io/resourceclaimtemplates "
        "storage.k8s.io/csistoragecapacities storage.k8s.io/storageclasses"
    ),
    "ff": "/persistentvolumes",
    "f": (
        "/limitranges discovery.k8s.io/endpointslices flowcontrol.apiserver.k8s.io/flowschemas "
        "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations storage.k8s.io/csinodes "
        "storage.k8s.io/volumeattachments"
    ),
    "F": (
        "admissionregistration.k8s.io/mutatingadmissionpolicies "
        "admissionregistration.k8s.io/mutatingadmissionpolicybindings "
        "admissionregistration.k8s.io/mutatingwebhookconfigurations "
        "admissionregistration.k8s.io/validatingadmissionpolicies "
        "admissionregistration.k8s.io/validatingadmissionpolicybindings "
        "admissionregistration.k8s.io/validatingwebhookconfigurations"
    ),
    "U": "apiextensions.k8s.io/customresourcedefinitions coordination.k8s.io/leases",
    "FU": "node.k8s.io/runtimeclasses",
    "UF": "apiregistration.k8s.io/apiservices",
    "": "/events policy/poddisruptionbudgets",
}
_OF_KIND = {place: word for word, places in _ROUNDS.items() for place in places.split()}
_OF_STATUS = {
    "apiextensions.k8s.io/customresourcedefinitions": "U",
    "batch/cronjobs": "",
    "certificates.k8s.io/certificatesigningrequests": "fu",
    "policy/poddisruptionbudgets": "",
}
CUSTOM = "U"


def rounds(group: str, plural: str, subresource: str) -> str:
    """Return the rounds of a built-in kind, for an update of the object or of a subresource."""
    place = f"{group}/{plural}"
    if subresource:
        return _OF_STATUS.get(place, _USUAL)
    return _OF_KIND.get(place, _USUAL)


def asks_for_domains(group: str, plural: str) -> bool:
    """Return whether finalizers of a new object must have a domain."""
    word = rounds(group, plural, "")
    return word != "" and word.islower()
