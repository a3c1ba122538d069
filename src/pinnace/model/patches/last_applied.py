"""kubectl's last-applied annotation, which allows migrating from client-side to server-side apply."""

from __future__ import annotations

import orjson

from pinnace.model.objects import Object
from pinnace.schema.merge import field_sets
from pinnace.schema.merge.changes import find_changes, of
from pinnace.schema.merge.field_sets import FieldSet
from pinnace.schema.merge.merge import errs
from pinnace.schema.merge.structure import canonical
from pinnace.schema.shape import Schema

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MOST_ANNOTATION_BYTES = 256 * 1024


def fields_of_last_applied(live: Object, schema: Schema) -> FieldSet | None:
    """Return fields that kubectl's client-side apply set and that are unchanged: kubectl may take them over."""
    annotation = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not annotation:
        return None
    try:
        last = orjson.loads(annotation)
        if not isinstance(last, dict) or last.get("apiVersion") != live.get("apiVersion") or errs(last, schema):
            return None
        fields = of(last, schema)
        for differs in find_changes(last, live, schema):
            fields = field_sets.difference(fields, differs)
    except ValueError:
        return None
    return fields


def sync_last_applied(merged: Object, applied: Object) -> None:
    """Update kubectl's annotation where it exists, so that a client-side apply may follow."""
    annotations = merged["metadata"].get("annotations")
    if not annotations or not annotations.get(LAST_APPLIED):
        return
    config = applied
    own = applied["metadata"].get("annotations")
    if own is not None:
        without = {key: value for key, value in own.items() if key != LAST_APPLIED}
        config = {**applied, "metadata": {**applied["metadata"], "annotations": without}}
    annotations = {**annotations, LAST_APPLIED: canonical(config) + "\n"}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MOST_ANNOTATION_BYTES:
        del annotations[LAST_APPLIED]
    merged["metadata"]["annotations"] = annotations
