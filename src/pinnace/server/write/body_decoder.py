"""Decodes the body of a call as the kind that its URL serves, and checks the options of writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import orjson

from pinnace.kinds.golang import empty_fields, field_types
from pinnace.model import errors, field_errors, quantity
from pinnace.model.confidential import REDACTED, SECRET
from pinnace.model.metadata import validate_manager
from pinnace.model.objects import Kind, Object
from pinnace.model.patches.apply import ApplyFailed, described
from pinnace.model.patches.strategic import strip_merged_lists
from pinnace.model.resources import Registry, Resource
from pinnace.schema.golang import text as gotext
from pinnace.schema.golang.decode import DecodeError, Decoder, Decoders
from pinnace.schema.shape import Schema
from pinnace.server.request import body as bodies
from pinnace.server.request.body import Body, FieldValidation
from pinnace.server.request.call import Call, dry_run_errors
from pinnace.server.write.patch_body import patch_type

_Read = TypeVar("_Read")
_STRICTNESSES = ["", "Ignore", "Strict", "Warn"]
_SCHEME = "pkg/api/legacyscheme/scheme.go:30"


class BodyDecoder:
    """Decodes bodies by their schemas, with a Kubernetes server's error messages."""

    def __init__(self, registry: Registry, schema_of: Callable[[Kind], Schema | None]) -> None:
        self._registry = registry
        self._schema_of = schema_of
        self._decoders = Decoders(
            quantity=quantity.canonical, empty_fields=empty_fields.of_type, go_fields=field_types.of_type
        )
        self._compiled: dict[int, tuple[Resource, Decoder]] = {}

    def _read(self, call: Call, validation: FieldValidation) -> Body:
        content_type = call.request.head.content_type
        return bodies.read(
            call.request.body,
            content_type,
            kind=kind_of(call),
            is_known=self._is_known,
            is_custom=call.resource.custom is not None and kind_of(call) == call.resource.kind,
            look_for_repeats=validation != "Ignore",
        )

    def _is_known(self, kind: Kind) -> bool:
        return self._registry.of_kind(kind) is not None

    def object(self, call: Call) -> Object:
        """Return the object of a create or update. Raise for wrong types; drop unknown fields and warn about them."""
        validation = strictness(call)
        body = self._read(call, validation)
        self.modernize(call, body.obj)
        decoder = self._decoder(call.resource)
        call.warnings.extend(bodies.decode(body, decoder, kind=call.resource.kind, validation=validation))
        return body.obj

    def modernize(self, call: Call, obj: Object) -> None:
        """Rewrite a deprecated form of the object, and warn about it."""
        if call.resource.modernize is not None and not call.subresource:
            call.warnings.extend(call.resource.modernize(obj))

    def message(self, call: Call) -> Object:
        """Return a body that is not stored: a Scale, a Binding, a review."""
        validation = strictness(call)
        body = self._read(call, validation)
        kind = kind_of(call)
        call.warnings.extend(bodies.decode(body, self.decoder_of(kind), kind=kind, validation=validation))
        return body.obj

    def patched(
        self,
        call: Call,
        wanted: Object,
        shown: Any,
        kind: Kind | None = None,
        oddities: tuple[str, ...] = (),
        live: Object | None = None,
    ) -> Object:
        """Decode the result of a patch as its kind. `shown` is quoted in errors instead of the result.

        `live` is the object before, if the result may share parts with it: those are decoded already.
        """
        kind = kind or kind_of(call)
        is_custom = call.resource.custom is not None and kind == call.resource.kind
        validation = strictness(call)
        # Decoding drops the fields that the error is about.
        whole = orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS) if is_custom and validation == "Strict" else b""
        try:
            if shown is None and not is_custom:
                self._check_still(kind, wanted)
            self.modernize(call, wanted)
            decode = self.decoder_of(kind)
            unknown = decode(wanted) if live is None or is_custom else _decode_changed(decode, wanted, live)
            if unknown or oddities:
                errs = [*oddities, *(f'unknown field "{path}"' for path in unknown)]
                if validation == "Strict":
                    raise DecodeError(f"strict decoding error: {', '.join(errs)}")
                if validation == "Warn":
                    call.warnings.extend(errs)
        except DecodeError as error:
            if not is_custom and "apply-patch" in call.request.head.content_type:
                raise ApplyFailed(
                    f"failed to convert new object ({described(wanted)}) to proper version: unable to convert "
                    f"unstructured object to {kind.group}/{kind.version}, Kind={kind.name}: {error.conversion}"
                ) from None
            order = orjson.OPT_SORT_KEYS if is_custom else None
            said = whole or orjson.dumps(wanted, option=order)
            text = said.decode() if shown is None else gotext.format_value(strip_merged_lists(shown))
            if kind == SECRET:
                text = REDACTED
            err = field_errors.invalid("patch", text, str(error) if shown is None else error.conversion)
            raise errors.Invalid([err], group="", kind="", name="") from None
        if not is_custom:  # Validation reports a changed kind of custom objects.
            wanted["kind"], wanted["apiVersion"] = kind.name, kind.api_version
        return wanted

    def _check_still(self, kind: Kind, wanted: Object) -> None:
        """Raise if a patch changed the kind. Another version of the same kind is accepted."""
        name, api_version = wanted.get("kind"), wanted.get("apiVersion")
        if name == kind.name and api_version == kind.api_version:
            return
        found = Kind.parse(str(api_version or kind.api_version), str(name or kind.name))
        if self._schema_of(found) is None and self._registry.of_kind(found) is None:
            raise DecodeError(f'no kind "{name}" is registered for version "{api_version}" in scheme "{_SCHEME}"')
        if found.name != kind.name:
            package = kind.group.partition(".")[0] or "core"
            raise DecodeError(f"converting ({found.version}.{name}) to ({package}.{kind.name}): unknown conversion")

    def decoder_of(self, kind: Kind) -> Decoder:
        """Return the decoder of a kind, served as a resource or only used in bodies."""
        resource = self._registry.of_kind(kind)
        if resource is not None:
            return self._decoder(resource)
        schema = self._schema_of(kind)
        assert schema is not None, f"{kind} is served, so its schema is known"
        return self._decoders.of(schema)

    def _decoder(self, resource: Resource) -> Decoder:
        known = self._compiled.get(id(resource))
        if known is None or known[0] is not resource:
            decoder = self._decoders.of(resource.schema) if resource.custom is None else resource.custom.decode
            self._registry.drop_stale(self._compiled)
            known = self._compiled[id(resource)] = (resource, decoder)
        return known[1]


def metadata_of(obj: Object) -> Object:
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise errors.BadRequest("metadata must be an object")
    return metadata


def _decode_changed(decode: Decoder, wanted: Object, live: Object) -> list[str]:
    """Decode the parts that are not those of the object before, in place; return the paths of unknown fields."""
    changed = {name: part for name, part in wanted.items() if part is not live.get(name)}
    names = list(changed)
    unknown = decode(changed)
    for name in names:  # Each in its place: the order of fields is that of the stored bytes.
        if name in changed:
            wanted[name] = changed[name]
        else:
            del wanted[name]
    return unknown


def check_kind(applied: Object, kind: Kind) -> None:
    api_version, name = applied.get("apiVersion"), applied.get("kind")
    found = Kind.parse(api_version if isinstance(api_version, str) else "", name if isinstance(name, str) else "")
    if found != kind:
        raise errors.BadRequest(f"invalid object type: {found.group}/{found.version}, Kind={found.name}")


def match_namespace(call: Call, metadata: Object) -> None:
    if not call.resource.namespaced:
        metadata.pop("namespace", None)
        return
    if not metadata.get("namespace"):
        metadata["namespace"] = call.namespace
    elif metadata["namespace"] != call.namespace:
        raise errors.BadRequest("the namespace of the provided object does not match the namespace sent on the request")


def match_name(call: Call, metadata: Object) -> None:
    if not metadata.get("name"):
        raise errors.BadRequest(
            f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
        )
    if metadata["name"] != call.name:
        raise errors.BadRequest(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
        )


def patch_type_of(call: Call) -> str:
    content_type = call.request.head.content_type
    return patch_type(content_type, takes_strategic=call.resource.strategy.takes_strategic_patches)


def read_existing_patch(call: Call, read: Callable[[Call], _Read], find: Callable[[Call], object]) -> _Read:
    """Read a patch. A missing object is reported before a bad patch, unless the patch could create the object."""
    try:
        return read(call)
    except errors.BadRequest:
        if call.subresource or "apply-patch" not in call.request.head.content_type:
            find(call)
        raise


def strictness(call: Call) -> FieldValidation:
    if not call.request.raw_query:
        return "Warn"
    asked = call.text("fieldValidation")
    if asked == "Strict":
        return "Strict"
    if asked == "Ignore":
        return "Ignore"
    if asked and asked != "Warn":
        raise errors.Invalid([_unknown_strictness(asked)], group="meta.k8s.io", kind=_options_of(call), name="")
    return "Warn"


def report_repeated_keys(call: Call, repeated: tuple[str, ...]) -> None:
    validation = strictness(call)
    if validation == "Strict":
        errs = "\n  ".join(("yaml: unmarshal errors:", *repeated))
        raise errors.BadRequest(f"error strict decoding YAML: error converting YAML to JSON: {errs}")
    if validation == "Warn":
        call.warnings.extend(repeated)


def check_options(call: Call, *, is_apply: bool | None = None) -> None:
    """Raise for all wrong options of a write at once. `is_apply` is None unless the write is a patch."""
    request = call.request
    if not is_apply and not request.raw_query:
        return
    errs: list[field_errors.FieldError] = []
    manager, asked = call.text("fieldManager"), call.text("fieldValidation")
    if is_apply and not manager:
        errs.append(field_errors.required("fieldManager", "is required for apply patch"))
    if is_apply is False and request.parameter("force") is not None:
        errs.append(field_errors.forbidden("force", "may not be specified for non-apply patch"))
    if manager:
        errs.extend(validate_manager(manager, "fieldManager"))
    errs.extend(dry_run_errors(request.query.get("dryRun") or []))
    if asked and asked not in _STRICTNESSES:
        errs.append(_unknown_strictness(asked))
    if errs:
        if call.verb == "create":
            bodies.check_media_type(request.head.content_type)  # A create reports this first.
        raise errors.Invalid(errs, group="meta.k8s.io", kind=_options_of(call), name="")


def _unknown_strictness(asked: str) -> field_errors.FieldError:
    return field_errors.not_supported("fieldValidation", asked, _STRICTNESSES)


def _options_of(call: Call) -> str:
    return f"{call.verb.capitalize()}Options"


def kind_of(call: Call) -> Kind:
    """Return the kind of the body of a call."""
    sub = call.resource.subresource(call.subresource) if call.subresource else None
    return sub.kind if sub is not None else call.resource.kind
