"""Decodes the bodies of writes: objects and messages by their kind, patches as edits; checks the options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import orjson

from pinnace.kinds.golang import empty_fields, field_types
from pinnace.model import errors, field_errors, quantity
from pinnace.model.errors import REDACTED, SECRET
from pinnace.model.metadata import validate_manager
from pinnace.model.objects import Kind, Object
from pinnace.model.patches.apply import ApplyFailed, described
from pinnace.model.patches.json_and_merge import unknown_patch_fields
from pinnace.model.patches.strategic import strip_merged_lists
from pinnace.model.resources import Registry, Resource
from pinnace.process.clock import Clock, to_rfc3339
from pinnace.schema.golang import text as gotext
from pinnace.schema.golang.decode import DecodeError, Decoder, Decoders
from pinnace.schema.shape import Schema
from pinnace.serving.request import body as bodies
from pinnace.serving.request.body import (
    GO_FORMS,
    Body,
    FieldValidation,
    MalformedBody,
    check_containers,
    parse_json,
    repeated_fields,
)
from pinnace.serving.request.call import Call, dry_run_errors
from pinnace.serving.request.yaml_body import YamlError, read_yaml
from pinnace.serving.write import edits
from pinnace.serving.write.edits import APPLY_PATCHES, APPLY_YAML, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Ownerships

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
        quoted: Any,
        kind: Kind | None = None,
        oddities: tuple[str, ...] = (),
        live: Object | None = None,
    ) -> Object:
        """Decode the result of a patch as its kind. `quoted` stands in errors instead of the result.

        `live` is the object before, if the result may share parts with it: those are decoded already.
        """
        kind = kind or kind_of(call)
        if call.resource.custom is not None and kind == call.resource.kind:
            return self._patched_custom(call, wanted, quoted, kind, oddities)
        try:
            if quoted is None:
                self._check_still(kind, wanted)
            self.modernize(call, wanted)
            decode = self._decoder(call.resource) if kind == call.resource.kind else self.decoder_of(kind)
            unknown = decode(wanted) if live is None else _decode_changed(decode, wanted, live)
            if unknown or oddities:
                _report(call, oddities, unknown)
        except DecodeError as error:
            if "apply-patch" in call.request.head.content_type:
                raise _apply_failed(kind, wanted, error) from None
            raise _bad_patch(kind, quoted, orjson.dumps(wanted), error) from None
        wanted["kind"], wanted["apiVersion"] = kind.name, kind.api_version
        return wanted

    def _patched_custom(self, call: Call, wanted: Object, quoted: Any, kind: Kind, oddities: tuple[str, ...]) -> Object:
        """Decode the result of a patch as a custom kind. Validation reports a changed kind."""
        # Decoding drops the fields that the error is about.
        whole = orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS) if strictness(call) == "Strict" else b""
        try:
            self.modernize(call, wanted)
            unknown = self._decoder(call.resource)(wanted)
            if unknown or oddities:
                _report(call, oddities, unknown)
        except DecodeError as error:
            whole = whole or orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS)
            raise _bad_patch(kind, quoted, whole, error) from None
        return wanted

    def _check_still(self, kind: Kind, wanted: Object) -> None:
        """Raise if a patch changed the kind. Another version of the same kind is accepted."""
        name, api_version = wanted.get("kind"), wanted.get("apiVersion")
        if name != kind.name or api_version != kind.api_version:
            self._check_changed(kind, name, api_version)

    def _check_changed(self, kind: Kind, name: Any, api_version: Any) -> None:
        actual = Kind.parse(str(api_version or kind.api_version), str(name or kind.name))
        if self._schema_of(actual) is None and self._registry.of_kind(actual) is None:
            raise DecodeError(f'no kind "{name}" is registered for version "{api_version}" in scheme "{_SCHEME}"')
        if actual.name != kind.name:
            package = kind.group.partition(".")[0] or "core"
            raise DecodeError(f"converting ({actual.version}.{name}) to ({package}.{kind.name}): unknown conversion")

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


def _report(call: Call, oddities: tuple[str, ...], unknown: list[str]) -> None:
    """Raise for repeated and unknown fields, warn about them, or ignore them, as the client wants."""
    validation, errs = strictness(call), [*oddities, *(f'unknown field "{path}"' for path in unknown)]
    if validation == "Strict":
        raise DecodeError(f"strict decoding error: {', '.join(errs)}")
    if validation == "Warn":
        call.warnings.extend(errs)


def _apply_failed(kind: Kind, wanted: Object, error: DecodeError) -> ApplyFailed:
    return ApplyFailed(
        f"failed to convert new object ({described(wanted)}) to proper version: unable to convert "
        f"unstructured object to {kind.group}/{kind.version}, Kind={kind.name}: {error.conversion}"
    )


def _bad_patch(kind: Kind, quoted: Any, whole: bytes, error: DecodeError) -> errors.Invalid:
    text = whole.decode() if quoted is None else gotext.format_value(strip_merged_lists(quoted))
    text = REDACTED if kind == SECRET else text
    err = field_errors.invalid("patch", text, str(error) if quoted is None else error.conversion)
    return errors.Invalid([err], group="", kind="", name="")


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
    actual = Kind.parse(api_version if isinstance(api_version, str) else "", name if isinstance(name, str) else "")
    if actual != kind:
        raise errors.BadRequest(f"invalid object type: {actual.group}/{actual.version}, Kind={actual.name}")


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


def strictness(call: Call) -> FieldValidation:
    """Return what to do about unknown and repeated fields."""
    return _given_strictness(call) if call.request.raw_query else "Warn"


def _given_strictness(call: Call) -> FieldValidation:
    wanted = call.text("fieldValidation")
    if wanted == "Strict":
        return "Strict"
    if wanted == "Ignore":
        return "Ignore"
    if wanted and wanted != "Warn":
        raise errors.Invalid([_unknown_strictness(wanted)], group="meta.k8s.io", kind=_options_of(call), name="")
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
    if is_apply or call.request.raw_query:
        _check_given_options(call, is_apply=is_apply)


def _check_given_options(call: Call, *, is_apply: bool | None) -> None:
    request = call.request
    errs: list[field_errors.FieldError] = []
    manager, strictness = call.text("fieldManager"), call.text("fieldValidation")
    if is_apply and not manager:
        errs.append(field_errors.required("fieldManager", "is required for apply patch"))
    if is_apply is False and request.parameter("force") is not None:
        errs.append(field_errors.forbidden("force", "may not be specified for non-apply patch"))
    if manager:
        errs.extend(validate_manager(manager, "fieldManager"))
    errs.extend(dry_run_errors(request.query.get("dryRun") or []))
    if strictness and strictness not in _STRICTNESSES:
        errs.append(_unknown_strictness(strictness))
    if errs:
        if call.verb == "create":
            bodies.check_media_type(request.head.content_type)  # A create reports this first.
        raise errors.Invalid(errs, group="meta.k8s.io", kind=_options_of(call), name="")


def _unknown_strictness(strictness: str) -> field_errors.FieldError:
    return field_errors.not_supported("fieldValidation", strictness, _STRICTNESSES)


def _options_of(call: Call) -> str:
    return f"{call.verb.capitalize()}Options"


def kind_of(call: Call) -> Kind:
    """Return the kind of the body of a call."""
    sub = call.resource.subresource(call.subresource) if call.subresource else None
    return sub.kind if sub is not None else call.resource.kind


_FORMS = frozenset((JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_YAML))
_WITHOUT_STRATEGIC = (JSON_PATCH, MERGE_PATCH, APPLY_YAML)


class UnknownPatch(errors.ApiError):
    """A content type of patches that the server does not support."""

    code, reason = 415, "UnsupportedMediaType"
    always_shows_details = True

    def __init__(self) -> None:
        super().__init__("415: Unsupported Media Type")


def patch_type(call: Call) -> str:
    """Return the media type of a patch."""
    media_type = call.request.head.content_type.partition(";")[0]  # As it is written: Kubernetes does not ignore case.
    if not call.resource.strategy.takes_strategic_patches and media_type not in _WITHOUT_STRATEGIC:
        raise errors.UnsupportedMediaType(_WITHOUT_STRATEGIC)
    if media_type not in _FORMS:
        raise UnknownPatch()
    return media_type


class Patch(NamedTuple):
    document: Any
    """A list of operations for a JSON patch, an object for every other type."""
    oddities: tuple[str, ...] = ()
    """One message for each repeated field (the last one wins) and for each unknown field of an operation."""


def read_patch(body: bytes, media_type: str) -> Patch:
    if media_type in APPLY_PATCHES:
        return _read_applied(body)
    lead = "" if media_type == STRATEGIC_PATCH else "error decoding patch: "
    try:
        document = parse_json(body)
        check_containers(document, body)
    except MalformedBody as err:
        raise errors.BadRequest(f"{lead}{err}") from None
    form: type[Any] = list if media_type == JSON_PATCH else dict
    if not isinstance(document, form):
        return _empty_patch(document, form, lead, is_merge=media_type == MERGE_PATCH)
    repeated = repeated_fields(body, document)
    if isinstance(document, list):
        duplicates = (f'json patch duplicate field "{path}"' for path in repeated)
        return Patch(document, (*duplicates, *unknown_patch_fields(document)))
    return Patch(document, tuple(f'duplicate field "{path}"' for path in repeated))


def _empty_patch(document: Any, form: type[Any], lead: str, *, is_merge: bool) -> Patch:
    """Return the patch of null, which Go decodes as an empty map or list. Raise for a document of another form."""
    if document is None and is_merge:
        raise errors.BadRequest("Invalid JSON Patch")
    if document is None:
        return Patch(form())
    go_type = "[]handlers.jsonPatchOp" if form is list else "map[string]interface {}"
    raise errors.BadRequest(f"{lead}json: cannot unmarshal {GO_FORMS[type(document)]} into Go value of type {go_type}")


def _read_applied(body: bytes) -> Patch:
    """Return the configuration of a server-side apply, in YAML or JSON."""
    if body[:1] == b"{":  # Most clients send JSON as YAML, which parses ten times faster as JSON.
        with suppress(MalformedBody):
            applied = parse_json(body)
            check_containers(applied, body)
            return Patch(applied, read_yaml(body).repeated if repeated_fields(body, applied) else ())
    try:
        applied, repeated = read_yaml(body)
        check_containers(applied, body)
    except YamlError as err:
        raise errors.BadRequest(f"error decoding YAML: error converting YAML to JSON: {err}") from None
    if applied is not None and not isinstance(applied, dict):
        raise errors.BadRequest(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{GO_FORMS.get(type(applied), 'null')} into Go value of type map[string]interface {{}}"
        )
    return Patch(applied, repeated)


_Read = TypeVar("_Read")


def read_existing_patch(call: Call, read: Callable[[Call], _Read], find: Callable[[Call], object]) -> _Read:
    """Read a patch. A missing object is reported before a bad patch, unless the patch could create the object."""
    try:
        return read(call)
    except errors.BadRequest:
        if call.subresource or "apply-patch" not in call.request.head.content_type:
            find(call)
        raise


class Patches:
    """Reads patches."""

    def __init__(self, decoder: BodyDecoder, ownerships: Ownerships, clock: Clock) -> None:
        self._decoder = decoder
        self._ownerships = ownerships
        self._clock = clock

    def read(self, call: Call) -> edits.Edit:
        """Return the edit of a JSON patch, merge patch, strategic merge patch or server-side apply."""
        content_type = patch_type(call)
        check_options(call, is_apply=content_type in edits.APPLY_PATCHES)
        document, oddities = read_patch(call.request.body, content_type)
        if content_type in edits.APPLY_PATCHES:
            return self._application(call, document or {}, oddities)

        def decode(wanted: Object, live: Object) -> Object:
            quoted = document if content_type == edits.STRATEGIC_PATCH else None
            known = live if call.resource.kind == call.resource.stored else None
            decoded = self._decoder.patched(call, wanted, quoted, oddities=oddities, live=known)
            decoded = edits.separate(decoded, live)
            metadata = metadata_of(decoded)
            match_name(call, metadata)
            match_namespace(call, metadata)
            return decoded

        return edits.patch(call, content_type, document, decode)

    def _application(self, call: Call, applied: Object, oddities: tuple[str, ...]) -> edits.Application:
        check_kind(applied, call.resource.kind)
        self._decoder.modernize(call, applied)

        def decode(merged: Object) -> Object:
            if oddities:
                report_repeated_keys(call, oddities)
            entries = merged["metadata"].pop("managedFields", None)  # Made by the server: nothing to decode there.
            decoded = self._decoder.patched(call, merged, None, call.resource.kind)
            metadata = metadata_of(decoded)
            match_namespace(call, metadata)
            match_name(call, metadata)  # An existing object has a name; a new one must bring it.
            if entries is not None:
                metadata["managedFields"] = entries
            return decoded

        return edits.Application(
            call=call,
            applied=applied,
            manager=call.manager,
            force=call.flag("force"),
            now=to_rfc3339(self._clock.now()),
            ownership=self._ownerships.of(call),
            decode=decode,
        )
