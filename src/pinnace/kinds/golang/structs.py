"""Print a whole pod as Kubernetes does: Go's structs in a table beside this file, read at the first error that needs
it.

A line is a struct and its fields in Go's order, `Probe Exec>ExecAction HTTPGet:httpGet>HTTPGetAction PeriodSeconds=0`:
a wire name where it is not the Go name with a lower-case letter, the value when absent, and the nested struct, with !
where it is never absent. The table is that of 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.golang.tables import rows
from pinnace.model.objects import AnyObject

TABLE = Path(__file__).with_suffix(".txt")
_OF_THE_HOST = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
_METADATA = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")


@cache
def struct(name: str) -> GoStruct:
    fields, structs, values = [], {}, []
    for text in rows(TABLE)[name].split():
        field, _, nested = text.partition(">")
        fields.append(field)
        if nested:
            go_name = field.partition(":")[0].partition("=")[0]
            structs[go_name] = struct(nested.removesuffix("!"))
            if nested.endswith("!"):
                values.append(go_name)
    return GoStruct(" ".join(fields), inline=tuple(values), structs=structs)


def pod_spec_view(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod spec as Go prints it. Go has the host namespaces in the security context."""
    security = spec.get("securityContext")
    shared = {field: spec[field] for field in _OF_THE_HOST if field in spec}
    if security is not None or shared:
        spec = {**spec, "securityContext": {**(security or {}), **shared}}
    return struct("PodSpec").view(spec)


def template_view(template: AnyObject) -> dict[str, Any]:
    """Return a pod template as Go prints it: metadata inline and by wire names."""
    metadata = template.get("metadata") or {}
    view: dict[str, Any] = {}
    for field in _METADATA:
        value = metadata.get(field)
        if value:
            view[field] = dict(sorted(value.items())) if isinstance(value, dict) else value
    return {**view, "Spec": pod_spec_view(template.get("spec") or {})}
