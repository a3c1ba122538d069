"""Reads the DeleteOptions of a request, from its body or its query."""

from __future__ import annotations

from pinnace.model import errors
from pinnace.model.objects import Kind, Object
from pinnace.schema.golang.decode import DecodeError
from pinnace.server.request.body import read_untyped
from pinnace.server.request.call import Call
from pinnace.server.write.body_decoder import BodyDecoder
from pinnace.server.write.deletion import DeleteOptions

_DELETE_OPTIONS = Kind("", "v1", "DeleteOptions")
_META_SCHEME = "pkg/apis/meta/internalversion/scheme/register.go:27"


def read_delete_options(call: Call, decoder: BodyDecoder) -> tuple[Object, DeleteOptions]:
    """Return the options as the client sent them, and parsed."""
    raw = _read_body(call, decoder) if call.request.body else _read_query(call)
    return raw, parse_delete_options(call, raw)


def parse_delete_options(call: Call, raw: Object) -> DeleteOptions:
    """Parse the options. A dry run may be asked for in the query or in the options."""
    options = DeleteOptions.of(raw)
    if options.is_dry_run:
        call.request.body_says_dry_run = True
    return options


def _read_body(call: Call, decoder: BodyDecoder) -> Object:
    """Read DeleteOptions of any version, or without a kind."""
    options = read_untyped(call.request.body, call.request.head.content_type)
    kind = options.get("kind") or _DELETE_OPTIONS.name
    if kind != _DELETE_OPTIONS.name:
        version = options.get("apiVersion", "")
        raise errors.BadRequest(f'no kind "{kind}" is registered for version "{version}" in scheme "{_META_SCHEME}"')
    try:
        decoder.decoder_of(_DELETE_OPTIONS)(options)
    except DecodeError as error:
        raise errors.BadRequest(str(error)) from None
    return options


def _read_query(call: Call) -> Object:
    options: Object = {}
    if not call.request.raw_query:
        return options
    grace = call.number("gracePeriodSeconds")
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if call.request.parameter("propagationPolicy") is not None:
        options["propagationPolicy"] = call.text("propagationPolicy")
    if call.request.parameter("orphanDependents") is not None:
        options["orphanDependents"] = call.flag("orphanDependents")
    if "dryRun" in call.request.query:
        options["dryRun"] = call.request.query["dryRun"]
    preconditions = {name: value for name in ("uid", "resourceVersion") if (value := call.text(name))}
    if preconditions:
        options["preconditions"] = preconditions
    return options
