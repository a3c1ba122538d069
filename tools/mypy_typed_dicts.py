"""A plug-in of mypy: `obj.get("replcias")` is an error if the type of `obj` has no such field.

mypy itself refuses unknown fields in `obj["replcias"]`, and accepts every one in `get`. In `"replcias" in obj` they are
not checked: there mypy drops the errors of plug-ins. Checked too are the names over which a loop runs, as in
`for field in ("replicas", "paused"): obj.get(field)`, and the arguments of the functions in FIELDS_AT and PATHS_AT.

`(obj.get("status") or {}).get("replicas")` is no error, also if the status has required fields, so that `{}` is no
status: `get` of an empty dict returns its default for every key.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.errorcodes import TYPEDDICT_ITEM
from mypy.nodes import Expression, StrExpr, TupleExpr
from mypy.plugin import FunctionContext, MethodContext, MethodSigContext, Plugin
from mypy.plugins.default import DefaultPlugin
from mypy.typeops import make_simplified_union
from mypy.types import (
    AnyType,
    FunctionLike,
    Instance,
    LiteralType,
    NoneType,
    Type,
    TypedDictType,
    TypeOfAny,
    UninhabitedType,
    UnionType,
    get_proper_type,
)

_GET = "typing.Mapping.get"
_METHODS = (
    _GET,
    "typing._TypedDict.pop",
    "typing._TypedDict.setdefault",
    "typing.Mapping.__contains__",
)
_FIELDS = "pinnace.kinds.validation.fields"
FIELDS_AT = {
    f"{_FIELDS}.{name}": 1 for name in ("validate_counts", "validate_required", "validate_id", "validate_mode")
}
"""Functions whose first argument is an object, and the number of the argument that names fields of it."""
PATHS_AT = {"pinnace.kinds.cells.reach": 1}
"""Functions whose first argument is an object, and the number of the first argument of the path of a field in it."""


class TypedDictPlugin(Plugin):
    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], FunctionLike] | None:
        return _accept_any_key if fullname == "builtins.dict.get" else None

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        if fullname in FIELDS_AT:
            return lambda context: _check_names(context, FIELDS_AT[fullname])
        if fullname in PATHS_AT:
            return lambda context: _check_path(context, PATHS_AT[fullname])
        return None

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        if fullname not in _METHODS:
            return None
        inner = DefaultPlugin(self.options).get_method_hook(fullname)

        def check(context: MethodContext) -> Type:
            subject = get_proper_type(context.type)
            result = inner(context) if inner is not None else context.default_return_type
            if isinstance(subject, TypedDictType) and context.args and context.args[0]:
                expression = context.args[0][0]
                keys = _keys(expression, context.arg_types[0][0])
                if (
                    not _fail_for_unknown(context, subject, keys)
                    and fullname == _GET
                    and _is_variable(expression, keys)
                ):
                    return _type_of_any(subject, keys, context)
            return result

        return check


def _accept_any_key(context: MethodSigContext) -> FunctionLike:
    """Return the signature of `get` with a first parameter of any type, if the dict is an empty literal."""
    subject = get_proper_type(context.type)
    if not isinstance(subject, Instance) or not isinstance(get_proper_type(subject.args[0]), UninhabitedType):
        return context.default_signature
    _, *others = context.default_signature.arg_types
    return context.default_signature.copy_modified(arg_types=[AnyType(TypeOfAny.special_form), *others])


def _keys(key: Expression, type: Type) -> list[str]:
    """Return the keys that an argument may have, if they are known."""
    if isinstance(key, StrExpr):
        return [key.value]
    known = get_proper_type(type)
    options = [get_proper_type(item) for item in known.items] if isinstance(known, UnionType) else [known]
    literals = [item.last_known_value if isinstance(item, Instance) else item for item in options]
    values = [item.value for item in literals if isinstance(item, LiteralType)]
    return [value for value in values if isinstance(value, str)] if len(values) == len(options) else []


def _is_variable(key: Expression, keys: list[str]) -> bool:
    return bool(keys) and not isinstance(key, StrExpr)


def _fail_for_unknown(context: MethodContext | FunctionContext, subject: TypedDictType, keys: list[str]) -> bool:
    unknown = [key for key in keys if key not in subject.items]
    for key in unknown:
        name = subject.fallback.type.name
        context.api.fail(f'TypedDict "{name}" has no key "{key}"', context.context, code=TYPEDDICT_ITEM)
    return bool(unknown)


def _type_of_any(subject: TypedDictType, keys: list[str], context: MethodContext) -> Type:
    """Return the type of `get` for any of these keys."""
    types = [subject.items[key] for key in keys]
    if len(context.arg_types) > 1 and context.arg_types[1]:
        types.append(context.arg_types[1][0])
    elif not subject.required_keys.issuperset(keys):
        types.append(NoneType())
    return make_simplified_union(types)


def _typed_dicts(type: Type) -> list[TypedDictType] | None:
    """Return the alternatives of a type if all are typed dicts, or None; else return None."""
    known = get_proper_type(type)
    options = [get_proper_type(item) for item in known.items] if isinstance(known, UnionType) else [known]
    dicts = [item for item in options if isinstance(item, TypedDictType)]
    return dicts if dicts and all(isinstance(item, TypedDictType | NoneType) for item in options) else None


def _check_names(context: FunctionContext, place: int) -> Type:
    subjects = _typed_dicts(context.arg_types[0][0]) if context.arg_types[0] else None
    for expression in context.args[place]:
        names = expression.items if isinstance(expression, TupleExpr) else [expression]
        keys = [name.value for name in names if isinstance(name, StrExpr)]
        for subject in subjects or ():
            _fail_for_unknown(context, subject, keys)
    return context.default_return_type


def _check_path(context: FunctionContext, place: int) -> Type:
    """Return the type of the field at a path, or None."""
    reached: Type = context.arg_types[0][0]
    for step in context.args[place]:
        known = get_proper_type(reached)
        subjects = _typed_dicts(known)
        if not isinstance(step, StrExpr) or subjects is None:
            if isinstance(step, StrExpr) and isinstance(known, Instance) and known.type.fullname == "builtins.dict":
                reached = known.args[1]
                continue
            return context.default_return_type
        if any(_fail_for_unknown(context, subject, [step.value]) for subject in subjects):
            return context.default_return_type
        reached = make_simplified_union([subject.items[step.value] for subject in subjects])
    return make_simplified_union([reached, NoneType()])


def plugin(version: str) -> type[Plugin]:
    return TypedDictPlugin
