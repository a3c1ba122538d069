"""A class that is a custom resource: its fields and options become its CustomResourceDefinition."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

from pydantic import ConfigDict, Field, create_model

from pinnace.model.objects import Key, Kind, Object
from pinnace.model.typed_objects import CustomResourceDefinition
from pinnace.sdk.resources.models import RAW, RULES, Model, Rule, wire_name
from pinnace.sdk.resources.schemas import KEEP_UNKNOWN, NotStructural, Schema, schema_of
from pinnace.sdk.resources.spelling import nearest

Spec = TypeVar("Spec")
Status = TypeVar("Status")

_GROUP = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$")
_TYPE = ("apiVersion", "kind")
_OPTIONS = (
    *("group", "version", "kind", "plural", "singular", "short_names", "categories", "scope", "served", "storage"),
    *("external", "deprecated", "columns", "scale", "selectable", "rules"),
)
_YAML_BOOLEANS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false"))
_FRAMES_TO_THE_CLASS = 4
_VERSION = re.compile(r"^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$")


class YamlBoolean(UserWarning):
    """A field has a name that YAML 1.1 takes for a boolean, such as `on`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of `kubectl get`. `path` locates its value, as in ".spec.replicas"; the schema gives its type."""

    name: str
    path: str
    type: Literal["", "string", "integer", "number", "boolean", "date"] = ""
    description: str = ""
    wide: bool = False
    """Shown only with `-o wide`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The paths by which `kubectl scale` and autoscalers find the desired and the current replicas."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDeclaration:
    """The options of a class, with their defaults filled in."""

    kind: Kind
    plural: str
    singular: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    namespaced: bool
    served: bool
    storage: bool
    external: bool
    """The definition belongs to another project, which installs it."""
    deprecated: str
    columns: tuple[Column, ...]
    scale: Scale | None
    selectable: tuple[str, ...]
    spec: type[Model] | None
    status: type[Model] | None

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{self.kind.group}"


class ResourceOwner(Model):
    """The owner of an object."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=False)

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(Model):
    """The metadata of an object: its name, its labels, and the fields that the server sets."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=False)

    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    finalizers: list[str] = Field(default_factory=list)
    owner_references: list[ResourceOwner] = Field(default_factory=list)


class CustomResource(Model, Generic[Spec, Status]):
    """An object of a kind of your own.

        class Website(CustomResource[WebsiteSpec, WebsiteStatus], group="example.com", version="v1"):
            "A static site, served from a git repository."

    A kind without a status is `CustomResource[WebsiteSpec, None]`. Further fields of the class stand beside spec and
    status on the wire. A class that cannot be a CRD raises NotStructural when it is defined.
    """

    model_config = ConfigDict(use_attribute_docstrings=False)

    metadata: Metadata = Field(default_factory=Metadata)
    spec: Spec
    status: Status = cast(Any, None)  # The constructor replaces None by an empty status.

    declared: ClassVar[ResourceDeclaration]

    def __init__(self, **data: Any) -> None:
        for part in ("spec", "status"):
            if data.get(part) is None:
                data[part] = None if _part_of(type(self), part) is None else {}
        super().__init__(**data)

    def __class_getitem__(cls, parts: Any) -> Any:
        if cls is CustomResource and not (isinstance(parts, tuple) and len(parts) == 2):
            raise TypeError(
                "CustomResource needs two classes: write CustomResource[Spec, Status], "
                "or CustomResource[Spec, None] for a kind without a status"
            )
        return super().__class_getitem__(parts)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(
        cls,
        *,
        group: str = "",
        version: str = "",
        kind: str = "",
        plural: str = "",
        singular: str = "",
        short_names: Sequence[str] = (),
        categories: Sequence[str] = (),
        scope: Literal["Namespaced", "Cluster"] = "Namespaced",
        served: bool = True,
        storage: bool = True,
        external: bool = False,
        deprecated: str = "",
        columns: Sequence[Column | str] = (),
        scale: Scale | bool = False,
        selectable: Sequence[str] = (),
        rules: Sequence[Rule] = (),
        **options: Any,
    ) -> None:
        """`deprecated` is the warning for users of this version; `selectable` are paths for --field-selector.

        An `external` kind belongs to another project: operators use it and install its definition only in clusters
        that were started for them, by a test or `pinnace run --dev`.
        """
        name = kind or cls.__name__
        if options:
            raise NotStructural(name, f"{next(iter(options))}= is no option of a kind; there are {', '.join(_OPTIONS)}")
        super().__pydantic_init_subclass__(rules=rules)
        if not group and not version:
            return  # CustomResource[...] itself, or a base class of others.
        _check_identity(name, group, version, scope)
        _check_lists(name, short_names=short_names, categories=categories, columns=columns, selectable=selectable)
        singular = singular or name.lower()
        cls.declared = ResourceDeclaration(
            kind=Kind(group, version, name),
            plural=plural or plural_of(singular),
            singular=singular,
            short_names=tuple(short_names),
            categories=tuple(categories),
            namespaced=scope == "Namespaced",
            served=served,
            storage=storage,
            external=external,
            deprecated=deprecated,
            columns=tuple(_column(column) for column in columns),
            scale=Scale() if scale is True else scale or None,
            selectable=tuple(selectable),
            spec=_part_of(cls, "spec"),
            status=_part_of(cls, "status"),
        )
        _raise_if_invalid(cls)  # Report the server's errors here, at the line of the class.

    @classmethod
    def crd(cls) -> Object:
        """Return the CustomResourceDefinition, ready for `kubectl apply`."""
        return definition_of(cls)

    @classmethod
    def of(cls, obj: Object) -> Self:
        """Return the typed form of an object from the server."""
        return cls(**{name: value for name, value in obj.items() if name not in _TYPE})

    def to_wire(self) -> Object:
        """Return the object in its wire form."""
        declared = type(self).declared
        wire: Object = {"apiVersion": declared.kind.api_version, "kind": declared.kind.name, **super().to_wire()}
        wire["metadata"] = {name: value for name, value in wire["metadata"].items() if value not in ("", {}, [])}
        return wire

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


if TYPE_CHECKING:
    AnyResource = CustomResource[Any, Any]
else:
    AnyResource = CustomResource  # A parametrized one would be a class of its own, built at every import.


def is_resource_class(kind: object) -> bool:
    """Return whether this is a class of a custom resource that has a group and a version."""
    return isinstance(kind, type) and issubclass(kind, CustomResource) and "declared" in vars(kind)


def _check_identity(name: str, group: str, version: str, scope: str) -> None:
    if not _GROUP.match(group):
        raise NotStructural(name, f'group={group!r}: write a domain of yours in lower case, such as "example.com"')
    if not _VERSION.match(version):
        raise NotStructural(name, f"version={version!r}: write v1, v1beta1 or v1alpha1")
    if scope not in ("Namespaced", "Cluster"):
        raise NotStructural(name, f'scope={scope!r}: write "Namespaced" or "Cluster"')


def _check_lists(name: str, **options: Sequence[Any]) -> None:
    for option, value in options.items():
        if isinstance(value, str):  # A string is a sequence too, of its letters.
            raise NotStructural(name, f"{option}={value!r}: write a list, [{value!r}]")


def plural_of(singular: str) -> str:
    """Return the plural by English rules: websites, policies, ingresses."""
    if singular.endswith(("s", "x", "z", "ch", "sh")):
        return f"{singular}es"
    if singular.endswith("y") and singular[-2:-1] not in ("a", "e", "i", "o", "u"):
        return f"{singular[:-1]}ies"
    return f"{singular}s"


def definition_of(*versions: type[AnyResource], conversion: Object | None = None) -> Object:
    """Return the CustomResourceDefinition of a kind in one or more versions. `conversion` is its spec.conversion."""
    stored = [version for version in versions if version.declared.storage]
    name = versions[0].declared.kind.name
    if len(stored) != 1:
        raise NotStructural(
            name,
            f"{len(stored)} of its versions say storage=True; objects are kept in one: storage=False for the others",
        )
    declared = stored[0].declared
    odd = [version.__name__ for version in versions if _identity(version.declared) != _identity(declared)]
    if odd:
        raise NotStructural(name, f"{', '.join(odd)} differs in plural, singular or scope from {stored[0].__name__}")
    return _definition(declared, [version_of(version) for version in versions], conversion)


def external_definition_of(*versions: type[AnyResource]) -> Object:
    """Return a CustomResourceDefinition of an external kind, with the versions that have classes.

    It is good enough for development, in a cluster where the kind's owner is not installed.
    """
    # There may be no class of the version that is really stored.
    stored = next((version for version in versions if version.declared.storage), versions[0]).declared
    listed = [{**version_of(version), "storage": version.declared is stored} for version in versions]
    definition = _definition(stored, listed, None)
    if f".{stored.kind.group}".endswith((".k8s.io", ".kubernetes.io")):
        # The server requires an approval for these groups, or this annotation.
        definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for development only"}
    return definition


def _definition(declared: ResourceDeclaration, versions: list[Object], conversion: Object | None) -> Object:
    name = declared.kind.name
    names: Object = {"kind": name, "listKind": f"{name}List", "plural": declared.plural, "singular": declared.singular}
    if declared.short_names:
        names["shortNames"] = list(declared.short_names)
    if declared.categories:
        names["categories"] = list(declared.categories)
    spec: Object = {
        "group": declared.kind.group,
        "names": names,
        "scope": "Namespaced" if declared.namespaced else "Cluster",
        "versions": versions,
    }
    if conversion is not None:
        spec["conversion"] = conversion
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": declared.crd_name},
        "spec": spec,
    }


def version_of(resource: type[AnyResource]) -> Object:
    """Return the entry of a class in a CRD's `versions`. Raise NotStructural."""
    declared = resource.declared
    schema = _root_schema(resource)
    version: Object = {
        "name": declared.kind.version,
        "served": declared.served,
        "storage": declared.storage,
        "schema": {"openAPIV3Schema": schema},
    }
    if declared.deprecated:
        version |= {"deprecated": True, "deprecationWarning": declared.deprecated}
    subresources: Object = {}
    if declared.status is not None:
        subresources["status"] = {}
    if declared.scale is not None:
        _check_scale(declared, schema)
        subresources["scale"] = _scale(declared.scale)
    if subresources:
        version["subresources"] = subresources
    if declared.columns:
        version["additionalPrinterColumns"] = _columns(declared, schema)
    if declared.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in declared.selectable]
    return version


def _raise_if_invalid(resource: type[AnyResource]) -> None:
    """Raise NotStructural for the first error that the server would find."""
    from pinnace.kinds.apiextensions.validation import default_definition, validate_definition  # noqa: PLC0415 - takes long

    declared = resource.declared
    definition = _definition(declared, [{**version_of(resource), "storage": True}], None)
    default_definition(definition)
    errs = validate_definition(cast("CustomResourceDefinition", definition), None)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    # The names of an external kind's fields are its owner's choice.
    for field in () if declared.external else _yaml_booleans(schema, declared.kind.name):
        warnings.warn(
            f"{field}: YAML 1.1, which kubectl reads, takes this name for a boolean, so that users must write it in "
            'quotes: give it another name on the wire, Field(alias="...")',
            YamlBoolean,
            stacklevel=_FRAMES_TO_THE_CLASS,
        )
    # Groups of Kubernetes' own projects need an approval, which the owner of an external kind has.
    err = next((err for err in errs if not (declared.external and err.field.startswith("metadata."))), None)
    if err is not None:
        raise NotStructural(_place(err.field, declared.kind.name), err.message)


def _yaml_booleans(schema: Schema, at: str) -> Iterator[str]:
    """Yield the fields that kubectl and other readers of YAML 1.1 take for booleans."""
    for name, field in (schema.get("properties") or {}).items():
        if name.lower() in _YAML_BOOLEANS:
            yield f"{at}.{name}"
        yield from _yaml_booleans(field, f"{at}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from _yaml_booleans(schema[inner], at)


def _place(field: str, kind: str) -> str:
    """Return the place of an error in the class: Website.spec.gitRepo, or Website: short names."""
    below, _, where = field.partition("openAPIV3Schema")
    if below == field:
        return f"{kind}: {field.removeprefix('spec.')}"
    return kind + re.sub(r"\.properties\[([^\]]+)\]", r".\1", where).replace(".items", "[]")


def _root_schema(resource: type[AnyResource]) -> Schema:
    declared = resource.declared
    name = declared.kind.name
    properties: Schema = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    schema: Schema = {"type": "object"}
    if "__doc__" in vars(resource) and resource.__doc__:
        schema["description"] = " ".join(resource.__doc__.split())
    schema["properties"] = properties
    if declared.spec is not None:
        properties["spec"] = schema_of(declared.spec, at=f"{name}.spec")
        if properties["spec"].get("required"):
            schema["required"] = ["spec"]
        elif "default" in properties["spec"] and properties["spec"]["default"] is None:
            del properties["spec"]["default"]  # raw_schema(default=None) requests that spec may be missing.
        elif "default" not in properties["spec"]:
            # With the defaults of all fields: the server checks the rules on this default before it fills in fields.
            fields = properties["spec"].get("properties") or {}
            properties["spec"]["default"] = {
                name: field["default"] for name, field in fields.items() if "default" in field
            }
    if declared.status is not None:
        properties["status"] = schema_of(declared.status, at=f"{name}.status")
        required = properties["status"].get("required")
        if required:
            raise NotStructural(f"{name}.status.{required[0]}", "a new object has no status; give it a default")
    beside = _fields_beside(resource)
    if beside is not None:
        described = schema_of(beside, at=name)
        properties |= described["properties"]
        if described.get("required"):
            schema["required"] = [*schema.get("required", ()), *described["required"]]
    if resource.wire_rules:
        schema[RULES] = [rule.on_the_wire() for rule in resource.wire_rules]
    extra: Any = resource.model_config.get("json_schema_extra")
    return {**schema, **extra.get(RAW, {})} if isinstance(extra, dict) else schema


def _part_of(resource: type[Any], part: str) -> type[Model] | None:
    annotation = resource.model_fields[part].annotation
    if annotation is None or annotation is type(None):
        return None
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    raise NotStructural(f"{resource.__name__}.{part}", "write CustomResource[Spec, Status] with two Models, or None")


def _fields_beside(resource: type[AnyResource]) -> type[Model] | None:
    """Return a class of the fields beside spec and status, if there are any."""
    common = ("metadata", "spec", "status")
    fields = {name: field for name, field in resource.model_fields.items() if name not in common}
    odd = next((name for name, field in fields.items() if wire_name(name, field) in _TYPE), None)
    if odd is not None:
        raise NotStructural(f"{resource.__name__}.{odd}", "every object has this already; give it another name")
    wanted: dict[str, Any] = {name: (field.annotation, field) for name, field in fields.items()}
    return create_model(resource.__name__, __base__=Model, **wanted) if wanted else None


def _identity(declared: ResourceDeclaration) -> tuple[str, str, str, str, bool]:
    return (declared.kind.group, declared.kind.name, declared.plural, declared.singular, declared.namespaced)


def _column(column: Column | str) -> Column:
    if isinstance(column, Column):
        return column
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", column.rpartition(".")[2])
    return Column(name=words[:1].upper() + words[1:], path=column)


def _columns(declared: ResourceDeclaration, schema: Schema) -> list[Object]:
    rows: list[Object] = []
    for column in declared.columns:
        row: Object = {"name": column.name, "type": column.type or _type_at(schema, column), "jsonPath": column.path}
        if column.description:
            row["description"] = column.description
        if column.wide:
            row["priority"] = 1
        rows.append(row)
    if not any(column.name == "Age" for column in declared.columns):
        rows.append({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
    return rows


def _type_at(schema: Schema, column: Column) -> str:
    """Return the column type of the field at a plain path. Paths that filter or index give a string."""
    field: Any = schema
    if re.fullmatch(r"(\.[A-Za-z0-9_]+)+", column.path):
        for name in column.path[1:].split("."):
            field = (field.get("properties") or {}).get(name) or {}
        if not field and not column.path.startswith(".metadata."):
            raise NotStructural(f"the column {column.name}", f"there is no field {column.path}")
    kind = field.get("type", "string")
    if field.get("format") == "date-time" or column.path.endswith("Timestamp"):
        return "date"
    return kind if kind in ("integer", "number", "boolean") else "string"


def _check_scale(declared: ResourceDeclaration, schema: Schema) -> None:
    """Raise NotStructural if the replicas of a kind that can be scaled are not in its schema."""
    assert declared.scale is not None
    for path in (declared.scale.spec, declared.scale.status, declared.scale.selector):
        field: Any = schema
        for part in path.split(".")[1:] if path else ():
            fields = field.get("properties") or {}
            if part not in fields:
                if field.get(KEEP_UNKNOWN):
                    break
                raise NotStructural(
                    f"{declared.kind.name}: scale",
                    f"there is no field {path}{nearest(part, fields)}; add it, or write "
                    'scale=Scale(spec=".spec.replicas", status=".status.replicas") with the right paths',
                )
            field = fields[part]


def _scale(scale: Scale) -> Object:
    wire = {"specReplicasPath": scale.spec, "statusReplicasPath": scale.status}
    return {**wire, "labelSelectorPath": scale.selector} if scale.selector else wire
