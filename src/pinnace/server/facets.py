"""URLs below an object that show the whole of it but let only a part be changed: /status, /finalize and the like."""

from __future__ import annotations

from collections.abc import Callable

from pinnace.model.objects import Object

_LEFT_ALONE = frozenset(("metadata", "kind", "apiVersion"))


def keep_from(old: Object, new: Object, *, facet: str, has_status: bool) -> None:
    """Put back into `new` all that an update through this URL cannot change. Parts of `old` are shared."""
    metadata, before = new["metadata"], old["metadata"]
    for name in ("creationTimestamp", "generation", "deletionTimestamp"):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    for name in ("uid", "name", "namespace", "deletionGracePeriodSeconds"):
        if name in before:
            metadata.setdefault(name, before[name])
    metadata.pop("selfLink", None)
    if facet in _FACETS:
        _FACETS[facet](new, old)
    elif has_status:
        _take(new, old, "status")


def _take(new: Object, old: Object, name: str) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def _only(new: Object, old: Object, changed: str) -> None:
    """All top-level fields but `changed` and the metadata are as before."""
    for name in [*new, *old]:
        if name not in _LEFT_ALONE and name != changed:
            _take(new, old, name)


def _status(new: Object, old: Object) -> None:
    _only(new, old, "status")
    _take(new["metadata"], old["metadata"], "finalizers")


def _ephemeral_containers(new: Object, old: Object) -> None:
    wanted = (new.get("spec") or {}).get("ephemeralContainers")
    _only(new, old, "")
    if wanted is not None:
        new["spec"] = {**old["spec"], "ephemeralContainers": wanted}


def _resize(new: Object, old: Object) -> None:
    """Containers keep everything but their resources and resize policy."""
    spec = {**old["spec"]}
    wanted_spec = new.get("spec") or {}
    for group in ("containers", "initContainers"):
        if group in spec:
            wanted = {one.get("name"): one for one in wanted_spec.get(group) or []}
            spec[group] = [_resized(one, wanted.get(one["name"])) for one in spec[group]]
    if "resources" in wanted_spec:
        spec["resources"] = wanted_spec["resources"]
    _only(new, old, "")
    new["spec"] = spec


def _resized(container: Object, wanted: Object | None) -> Object:
    if wanted is None:
        return container
    resized = {**container}
    for name in ("resources", "resizePolicy"):
        _take(resized, wanted, name)
    return resized


def _finalize(new: Object, old: Object) -> None:
    wanted = (new.get("spec") or {}).get("finalizers")
    _only(new, old, "")
    new["spec"] = {**(old.get("spec") or {}), "finalizers": wanted or []}
    if not wanted:
        del new["spec"]["finalizers"]


def _approval(new: Object, old: Object) -> None:
    """Of the status the conditions alone, which decide: the certificate is the signer's."""
    _only(new, old, "status")


_FACETS: dict[str, Callable[[Object, Object], None]] = {
    "status": _status,
    "ephemeralcontainers": _ephemeral_containers,
    "resize": _resize,
    "finalize": _finalize,
    "approval": _approval,
}
FACETS = frozenset(_FACETS)
