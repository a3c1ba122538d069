"""Validates an object before it is stored: metadata that all kinds share, then the rules of its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pinnace.kinds.validation.metadata_repeats import CUSTOM, asks_for_domains, rounds
from pinnace.model import errors, names
from pinnace.model.field_errors import FieldError
from pinnace.model.metadata import validate_metadata, validate_metadata_update, validate_repeated_update
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.server.request.call import Call


def validate(call: Call, new: Object, old: Object | None) -> None:
    """Raise Invalid with every field error, or add the warnings of the object's kind to the call.

    Raise ExceedsInlineBudget if the rules of a custom resource are better evaluated in a thread.
    """
    resource, strategy = call.resource, call.resource.strategy
    errs = [] if old is None else validate_metadata_update(new, old)
    errs += validate_metadata(
        new,
        namespaced=resource.namespaced,
        qualified_finalizers=strategy.qualified_finalizers,
        name_rule=strategy.name_rule if old is None else names.path_segment,
        has_contents_checked=old is not None,
    )
    if errs:
        errs = list(_repeat(call, new, old))
    if old is None:
        errs += strategy.validate(new, None)
    elif not call.subresource:
        errs += strategy.validate(new, old)
    else:
        errs += _subresource_rule(strategy, call.subresource)(new, old)
    if errs:
        kind = resource.kind.name if resource.custom is None else str(new.get("kind") or resource.kind.name)
        raise errors.Invalid(errs, group=resource.stored.group, kind=kind, name=call.name)
    if call.subresource in ("", "scale"):
        call.warnings.extend(strategy.warnings(new, old))


def _repeat(call: Call, new: Object, old: Object | None) -> Iterable[FieldError]:
    """Return the errors of bad metadata as often as Kubernetes lists each: some several times, some not everywhere."""
    resource = call.resource
    place = (resource.stored.group, resource.plural)
    if old is not None:
        word = CUSTOM if resource.custom is not None else rounds(*place, call.subresource)
        return validate_repeated_update(new, old, word, namespaced=resource.namespaced)
    return validate_metadata(
        new,
        namespaced=resource.namespaced,
        qualified_finalizers=resource.custom is None and asks_for_domains(*place),
        name_rule=resource.strategy.name_rule,
    )


def _subresource_rule(strategy: Strategy, subresource: str) -> Callable[[Object, Object], Iterable[FieldError]]:
    if subresource == "binding":
        return _accept
    if subresource == "status":
        return strategy.validate_status
    return strategy.validate_subresource.get(subresource, strategy.validate)


def _accept(new: Object, old: Object) -> Iterable[FieldError]:
    """Return no error: the edit of a binding decides by itself what it may change."""
    return ()
