"""The row of custom resource definitions, and their conversion.

In v1beta1 a definition had one version, schema and list of columns at the top, for all versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pinnace.kinds import cells, older_schemas
from pinnace.kinds.apiextensions import validation
from pinnace.kinds.apiextensions.versions import READ_AS
from pinnace.kinds.cells import reach
from pinnace.kinds.rows import STATUS, Row, Version, old
from pinnace.model.objects import Object
from pinnace.model.resources import Column
from pinnace.schema.shape import Schema

V1BETA1 = "apiextensions.k8s.io/v1beta1"
_AT_TOP = {
    "validation": "schema",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
}
"""Fields that v1beta1 has once for all versions, with their names in each version of v1."""


def old_definition(schema: Schema) -> Schema:
    """Return the schema of v1beta1."""
    version = schema.properties["spec"].properties["versions"].items
    conversion = schema.properties["spec"].properties["conversion"]
    assert version is not None, "versions are a list of objects"
    webhook = conversion.properties["webhook"].properties
    columns = _old_columns(dict(version.properties["additionalPrinterColumns"].raw), version)
    own = {name: dict(version.properties[name].raw) for name in ("subresources",)}
    schema = older_schemas.at(schema, "spec.versions.[]", older_schemas.with_fields(additionalPrinterColumns=columns))
    schema = older_schemas.at(
        schema,
        "spec.conversion",
        older_schemas.with_fields(
            without=("webhook",),
            webhookClientConfig=dict(webhook["clientConfig"].raw),
            conversionReviewVersions=dict(webhook["conversionReviewVersions"].raw),
        ),
    )
    fields: dict[str, dict[str, Any]] = {
        "version": {"type": "string"},
        "validation": dict(version.properties["schema"].raw),
        "additionalPrinterColumns": columns,
        **own,
    }
    schema = older_schemas.at(schema, "spec", older_schemas.with_fields((), **fields))
    return older_schemas.at(schema, "spec", older_schemas.optional("scope", "versions"))


def _old_columns(columns: dict[str, Any], version: Schema) -> dict[str, Any]:
    item = version.properties["additionalPrinterColumns"].items
    assert item is not None, "columns are a list of objects"
    return {**columns, "items": older_schemas.renamed("JSONPath", "jsonPath")(dict(item.raw))}


def definition_to_v1(definition: Object) -> Object:
    spec: Object = definition.get("spec") or {}
    definition["spec"] = spec
    spec.setdefault("scope", "Namespaced")
    if not spec.get("versions") and spec.get("version"):
        spec["versions"] = [{"name": spec["version"], "served": True, "storage": True}]
    spec.pop("version", None)
    for old_name, name in _AT_TOP.items():
        value = spec.pop(old_name, None)
        if value is not None:
            for version in spec.get("versions") or ():
                version.setdefault(name, value)
    for version in spec.get("versions") or ():
        if version.get("additionalPrinterColumns"):
            version["additionalPrinterColumns"] = [_rename(column) for column in version["additionalPrinterColumns"]]
    _conversion_to_v1(spec.get("conversion"))
    if spec.get("preserveUnknownFields") is None:
        spec["preserveUnknownFields"] = True
    if spec["preserveUnknownFields"]:
        metadata = definition["metadata"] = definition.get("metadata") or {}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), READ_AS: V1BETA1}
    return definition


def definition_from_v1(definition: Object) -> Object:
    spec = definition.get("spec") or {}
    versions = spec.get("versions") or []
    spec["preserveUnknownFields"] = bool(spec.get("preserveUnknownFields"))
    _conversion_from_v1(spec.get("conversion"))
    if not versions:
        return definition
    spec["version"] = versions[0].get("name", "")
    for version in versions:
        if version.get("additionalPrinterColumns"):
            columns = version["additionalPrinterColumns"]
            version["additionalPrinterColumns"] = [_rename(column, "jsonPath", "JSONPath") for column in columns]
    for old_name, name in _AT_TOP.items():
        shared = versions[0].get(name)
        if shared is not None and all(version.get(name) == shared for version in versions):
            spec[old_name] = shared
            for version in versions:
                del version[name]
    return definition


def _rename(column: Object, before: str = "JSONPath", after: str = "jsonPath") -> Object:
    return {after if name == before else name: value for name, value in column.items()}


def _conversion_to_v1(conversion: Object | None) -> None:
    if conversion is None:
        return
    client, versions = conversion.pop("webhookClientConfig", None), conversion.pop("conversionReviewVersions", None)
    if conversion.get("strategy") == "Webhook" and not versions:
        versions = ["v1beta1"]
    if client is not None or versions is not None:
        webhook = {"clientConfig": client, "conversionReviewVersions": versions}
        conversion["webhook"] = {name: value for name, value in webhook.items() if value is not None}


def _conversion_from_v1(conversion: Object | None) -> None:
    webhook = (conversion or {}).pop("webhook", None) or {}
    if conversion is not None and webhook.get("clientConfig") is not None:
        conversion["webhookClientConfig"] = webhook["clientConfig"]
    if conversion is not None and webhook.get("conversionReviewVersions") is not None:
        conversion["conversionReviewVersions"] = webhook["conversionReviewVersions"]


def modernize_definition(definition: Object) -> Iterator[str]:
    """Accept a v1 definition that still has its fields at the top, as old manifests do. Return warnings that name the
    replacement."""
    spec = definition.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("version"), str):
        return
    name, versions = spec["version"], spec.get("versions") or []
    if versions and not (_is_read_so(definition) and versions[0].get("name") == name):
        return
    for old_name, new_name in _AT_TOP.items():
        if old_name in spec:  # Editing the old form edits all versions.
            for version in versions:
                version[new_name] = spec[old_name]
    old_fields = {old_name: name for old_name, name in _AT_TOP.items() if old_name in spec}
    has_schema = "validation" in spec or any("schema" in version for version in versions)
    definition_to_v1(definition)
    instead = f"[{{name: {name}, served: true, storage: true, schema: {{openAPIV3Schema: ...}}}}]"
    yield (
        "spec.version is not a field of apiextensions.k8s.io/v1, and is read as v1beta1 had it; write "
        f"spec.versions: {instead}"
    )
    for old_name, new_name in old_fields.items():
        yield f"spec.{old_name} is not a field of apiextensions.k8s.io/v1; write spec.versions[*].{new_name}"
    if not has_schema:
        yield (
            f"version {name} has no schema, so all fields are kept and none is checked; write one with "
            "x-kubernetes-preserve-unknown-fields: true to say so"
        )


def _is_read_so(definition: Object) -> bool:
    return READ_AS in ((definition.get("metadata") or {}).get("annotations") or {})


def _served_versions(definition: Object, now: datetime) -> str:
    served = (version for version in reach(definition, "spec", "versions") or () if version.get("served"))
    return ",".join(sorted(version["name"] + ("(storage)" if version.get("storage") else "") for version in served))


def _short_names(definition: Object, now: datetime) -> str:
    return ",".join(reach(definition, "spec", "names", "shortNames") or ())


_COLUMNS = (
    cells.NAME,
    cells.string("Scope", "Cluster/Namespaced", cells.at("spec.scope")),
    cells.string("Versions", "Served versions", _served_versions),
    cells.PLAIN[1],
    cells.string("Group", "API group", cells.at("spec.group"), wide=True),
    cells.string("Kind", "CustomResource kind", cells.at("spec.names.kind"), wide=True),
    cells.string("ShortNames", "Short names", _short_names, wide=True),
    Column(
        "Established",
        "boolean",
        "Established status",
        lambda definition, now: cells.is_true(definition, "Established"),
        priority=1,
    ),
)
ROWS = (
    Row(
        group="apiextensions.k8s.io",
        name="CustomResourceDefinition",
        plural="customresourcedefinitions",
        short_names=("crd", "crds"),
        namespaced=False,
        categories=("api-extensions",),
        versions=(
            Version("v1", modernize=modernize_definition),
            old(
                "v1beta1",
                deprecated="1.16",
                removed="1.22",
                replacement="apiextensions.k8s.io/v1",
                to_stored=definition_to_v1,
                from_stored=definition_from_v1,
                reshape=old_definition,
            ),
        ),
        subresources=(STATUS,),
        newer_columns=("1.37", _COLUMNS),
        strategy=validation.CUSTOM_RESOURCE_DEFINITION,
    ),
)
