"""The errors of a pod come in the order of Kubernetes."""

from __future__ import annotations

from typing import Any

from pinnace.kinds.pods.validation import validate_template
from pinnace.model.field_errors import FieldError


def test_a_pods_errors_come_in_order() -> None:
    spec: Any = {
        "os": {"name": "beos"},
        "overhead": {"cpu": "-1"},
        "preemptionPolicy": "x",
        "runtimeClassName": "_",
        "priorityClassName": "_",
        "hostAliases": [{"ip": "x"}],
        "tolerations": [{"operator": "x"}],
        "subdomain": "_",
        "hostname": "_",
        "activeDeadlineSeconds": 0,
        "nodeName": "_",
        "serviceAccountName": "_",
        "hostnameOverride": "_",
        "readinessGates": [{"conditionType": "_"}],
        "securityContext": {
            "seLinuxChangePolicy": "x",
            "supplementalGroupsPolicy": "x",
            "seccompProfile": {"type": "x"},
            "fsGroupChangePolicy": "x",
        },
        "nodeSelector": {"_": "x"},
        "dnsPolicy": "x",
        "restartPolicy": "x",
        "containers": [],
        "volumes": [{"name": "v", "nfs": {}, "configMap": {"name": "c"}}],
    }
    errs: list[FieldError] = []
    validate_template({"spec": spec}, "t", errs)
    assert list(dict.fromkeys(cause.field.removeprefix("t.spec.") for cause in errs)) == [
        "volumes[0].nfs.server",
        "volumes[0].nfs.path",
        "volumes[0].configMap",
        "containers",
        "restartPolicy",
        "dnsPolicy",
        "nodeSelector",
        "securityContext.fsGroupChangePolicy",
        "securityContext.seccompProfile.type",
        "securityContext.supplementalGroupsPolicy",
        "securityContext.seLinuxChangePolicy",
        "readinessGates[0].conditionType",
        "hostnameOverride",
        "serviceAccountName",
        "nodeName",
        "activeDeadlineSeconds",
        "hostname",
        "subdomain",
        "tolerations[0].operator",
        "hostAliases[0].ip",
        "priorityClassName",
        "runtimeClassName",
        "preemptionPolicy",
        "overhead.limits[cpu]",
        "os",
    ]
