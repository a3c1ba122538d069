"""The rules of x-kubernetes-validations: compiled with their schema, and evaluated for objects."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pinnace.process.work_slices import give_way
from pinnace.schema import field_errors as errs
from pinnace.schema.cel.declarations import Declaration, declaration_of
from pinnace.schema.cel.decoding import decoder
from pinnace.schema.cel.errors import CelError, CompileError, CostExceeded, InstantiationError
from pinnace.schema.cel.program import Program, compile_cel
from pinnace.schema.cel.run import CelRun
from pinnace.schema.cel.types import BOOL, STRING, optional_of
from pinnace.schema.cel.values import NONE, some
from pinnace.schema.crd.field_paths import place_of
from pinnace.schema.field_errors import FieldError
from pinnace.schema.shape import Raw, Schema
from pinnace.schema.validation.correlation import UNRELATED, OldItems, is_same

CALL_LIMIT = 1_000_000
"""The largest cost of one evaluation."""
BUDGET = 10_000_000
"""The largest cost of all rules for one object."""
LONGEST_MESSAGE = 5 * 1024
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


@dataclass(frozen=True, slots=True)
class RuleError(Exception):
    """A rule cannot be compiled. `field` is `rule` or `messageExpression`."""

    field: str
    message: str


def is_stated(raw: Raw) -> bool:
    return bool((raw.get("rule") or "").strip())


class CelRule:
    """One rule, compiled when it is first needed."""

    def __init__(self, raw: Raw, schema: Schema, declaration: Declaration) -> None:
        self.raw = raw
        self._schema = schema
        self._declaration = declaration
        self.has_optional_old = bool(raw.get("optionalOldSelf"))

    @cached_property
    def program(self) -> Program:
        """The compiled expression. Raise RuleError."""
        return self._compile("rule", "", BOOL, "cel expression must evaluate to a bool")

    @cached_property
    def message_program(self) -> Program | None:
        """The compiled expression. Raise RuleError."""
        if not self.raw.get("messageExpression"):
            return None
        mismatch = "messageExpression must evaluate to a string"
        return self._compile("messageExpression", "messageExpression ", STRING, mismatch)

    def _compile(self, field: str, subject: str, wanted: Any, mismatch: str) -> Program:
        old: Any = self._declaration
        if self.has_optional_old:
            old = optional_of(self._declaration.type)
        try:
            program = compile_cel(self.raw[field], {"self": self._declaration, "oldSelf": old})
        except CompileError as error:
            raise RuleError(field, f"{subject}compilation failed: {error}") from None
        except InstantiationError as error:
            raise RuleError(field, f"{subject or 'program '}instantiation failed: {error}") from None
        if program.result_type != wanted:
            raise RuleError(field, mismatch)
        return program

    @cached_property
    def uses_old(self) -> bool:
        return "oldSelf" in self.program.uses

    @cached_property
    def blamed_field(self) -> str:
        """The path of the field that the error is reported for (`fieldPath`); empty for the value itself."""
        path = self.raw.get("fieldPath") or ""
        try:
            return place_of(path, self._schema.raw).path if path else ""
        except ValueError:
            return ""

    @cached_property
    def decode_old(self) -> Any:
        return decoder(self._declaration)

    @property
    def name_in_errors(self) -> str:
        """The name of the rule in errors."""
        return str(self.raw.get("message") or self.raw["rule"]).strip()

    @property
    def message(self) -> str:
        stated = self.raw.get("message")
        return str(stated).strip() if stated else f"failed rule: {self.name_in_errors}"

    def bindings(self, value: Any, old: Any) -> dict[str, Any]:
        if self.has_optional_old:
            return {"self": value, "oldSelf": NONE if old is None else some(self.decode_old(old))}
        return {"self": value} if old is None else {"self": value, "oldSelf": old}


@dataclass(frozen=True, slots=True)
class _Relation:
    """A part of the object and the corresponding part of the old one."""

    value: Any
    old: Any
    schema: Raw

    @property
    def is_unchanged(self) -> bool:
        return is_same(self.value, self.old, self.schema)


@dataclass(frozen=True, slots=True)
class _Before:
    """The old value of a value, if any, and that of the nearest place above that has one."""

    here: _Relation | None = None
    above: _Relation | None = None

    @property
    def is_unchanged(self) -> bool:
        relation = self.here or self.above
        return relation is not None and relation.is_unchanged

    def key(self, key: str, value: Any, schema: Raw) -> _Before:
        if self.here is None:
            return self
        if self.above is None and key in ("apiVersion", "kind"):
            return _Before()
        old = self.here.old
        related = isinstance(old, dict) and key in old
        return _Before(_Relation(value, old[key], schema) if related else None, self.here)

    def item(self, value: Any, was: Any, schema: Raw) -> _Before:
        if self.here is None:
            return self
        return _Before(None if was is UNRELATED else _Relation(value, was, schema), self.here)


class _Stop(Exception):
    """Stop: no further rule runs; the errors so far are reported."""


class CelRules:
    """The rules of a schema and of all schemas below it."""

    def __init__(self, schema: Schema, declaration: Declaration | None) -> None:
        self._schema = schema
        raw_rules = schema.raw.get("x-kubernetes-validations") or ()
        self._own = [
            CelRule(raw, schema, declaration) for raw in raw_rules if declaration is not None and is_stated(raw)
        ]
        self._properties = {
            name: below for name, child in schema.properties.items() if (below := rules_of(child)) is not None
        }
        self._items = rules_of(schema.items) if schema.items is not None else None
        additional = schema.additional
        self._additional = rules_of(additional) if additional is not None else None

    @property
    def is_empty(self) -> bool:
        return not (self._own or self._properties or self._items or self._additional)

    def errs(
        self,
        value: Any,
        old: Any = None,
        *,
        path: str = "",
        warnings: list[str] | None = None,
        inline_seconds: float | None = None,
    ) -> list[FieldError]:
        """Return the errors that the rules find in a value that fits its schema.

        `old` is the value it replaces, None for a new one. Rules with oldSelf run only if there is one. Errors of
        unchanged parts are added to `warnings` instead. Raise ExceedsInlineBudget if they take `inline_seconds`.
        """
        collected: list[FieldError] = []
        walk = _Walk(_Account(inline_seconds), collected, [] if warnings is None else warnings)
        before = _Before(_Relation(value, old, self._schema.raw)) if old is not None else _Before()
        with suppress(_Stop):
            self._check(walk, path, value, old, before)
        return collected

    def _check(self, walk: _Walk, path: str, value: Any, old: Any, before: _Before) -> None:
        if value is None:
            return
        for rule in self._own:
            walk.run(rule, self._schema, path, value, old, before)
        if isinstance(value, dict):
            self._check_map(walk, path, value, old if isinstance(old, dict) else {}, before)
        elif isinstance(value, list) and self._items is not None:
            schema = self._schema.items
            assert schema is not None
            old_items = OldItems(self._schema.raw, old)
            for place, item in enumerate(value):
                was = old_items.of(item)
                below = before.item(item, was, schema.raw)
                self._items._check(walk, f"{path}[{place}]", item, None if was is UNRELATED else was, below)

    def _check_map(self, walk: _Walk, path: str, value: dict[str, Any], old: dict[str, Any], before: _Before) -> None:
        if self._additional is not None:
            schema = self._schema.additional
            assert schema is not None
            for key, each in value.items():
                below = before.key(key, each, schema.raw)
                self._additional._check(walk, f"{path}[{key}]", each, old.get(key), below)
        for key, rules in self._properties.items():
            if key in value:
                below = before.key(key, value[key], self._schema.properties[key].raw)
                rules._check(walk, f"{path}.{key}" if path else key, value[key], old.get(key), below)


class _OutOfBudget(Exception):
    """The object's budget is spent."""


class _Account:
    """The cost of an object's rules so far."""

    def __init__(self, inline_seconds: float | None) -> None:
        """`inline_seconds`: how long the rules may take on the event loop; None beside it."""
        self._run = CelRun({}, inline_seconds=inline_seconds)

    def evaluate(self, program: Program, bindings: dict[str, Any]) -> Any:
        """Return the value. Raise CelError, CostExceeded above a call's limit, _OutOfBudget above the object's.

        Raise ExceedsInlineBudget if the rules take too long for the event loop.
        """
        run = self._run
        run.variables, run.limit = bindings, run.cost + CALL_LIMIT
        try:
            return program.evaluate_in(run)
        finally:
            if run.cost > BUDGET:
                raise _OutOfBudget


class _Walk:
    """One walk over an object that evaluates its rules."""

    def __init__(self, account: _Account, collected: list[FieldError], warnings: list[str]) -> None:
        self._account = account
        self._errs = collected
        self._warnings = warnings

    def run(self, rule: CelRule, schema: Schema, path: str, value: Any, old: Any, before: _Before) -> None:
        at = path or "<nil>"
        give_way()
        try:
            if rule.uses_old and old is None and not rule.has_optional_old:
                return
            passed = self._account.evaluate(rule.program, rule.bindings(value, old))
        except RuleError as error:
            self._errs.append(errs.invalid(at, schema.type, f"rule compile error: {error.message}"))
            return
        except _OutOfBudget:
            self._errs.append(errs.invalid(at, schema.type, OUT_OF_BUDGET))
            raise _Stop from None
        except CostExceeded as error:
            reason = "no further validation rules will be run due to call cost exceeds limit for rule"
            detail = f"'{error}': {reason}: {rule.name_in_errors}"
            self._errs.append(errs.invalid(at, schema.type, detail))
            raise _Stop from None
        except CelError as error:
            self._errs.append(errs.invalid(at, schema.type, _failure(error, rule)))
            return
        if passed is not True:
            self._report(rule, schema, path, value, old, before)

    def _report(self, rule: CelRule, schema: Schema, path: str, value: Any, old: Any, before: _Before) -> None:
        at = path
        if rule.blamed_field:
            at = f"{path}.{rule.blamed_field}" if path else rule.blamed_field
        try:
            message = self._message(rule, value, old)
        except _MessageTooCostly as error:
            self._add(rule, errs.invalid(at or "<nil>", schema.type, str(error)), before)
            raise _Stop from None
        self._add(rule, _err(rule, schema, at or "<nil>", value, message), before)

    def _add(self, rule: CelRule, err: FieldError, before: _Before) -> None:
        if not rule.uses_old and before.is_unchanged:
            self._warnings.append(str(err))
        else:
            self._errs.append(err)

    def _message(self, rule: CelRule, value: Any, old: Any) -> str:
        expression = rule.raw.get("messageExpression")
        try:
            program = rule.message_program
            if program is None:
                return rule.message
            text = self._account.evaluate(program, rule.bindings(value, old))
        except _OutOfBudget:
            raise _MessageTooCostly(
                "messageExpression evaluation failed due to running out of cost budget, "
                "no further validation rules will be run"
            ) from None
        except CostExceeded:
            raise _MessageTooCostly(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: "
                f"{errs.format_bad_value(expression)}"
            ) from None
        except (CelError, RuleError):
            return rule.message
        trimmed = text.strip() if isinstance(text, str) else ""
        if not trimmed or "\n" in trimmed or len(trimmed.encode()) > LONGEST_MESSAGE:
            return rule.message
        return trimmed


class _MessageTooCostly(Exception):
    """A messageExpression costs more than the rest of the budget."""


def _failure(error: CelError, rule: CelRule) -> str:
    if str(error).startswith("no such overload"):
        signature = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{error}': {signature}: {rule.name_in_errors}"
    return f"{error} evaluating rule: {rule.name_in_errors}"


def _err(rule: CelRule, schema: Schema, path: str, value: Any, message: str) -> FieldError:
    is_whole = schema.type in ("object", "array")  # Their values are not part of a message.
    match rule.raw.get("reason"):
        case "FieldValueForbidden":
            return errs.forbidden(path, message)
        case "FieldValueRequired":
            return errs.required(path, message)
        case "FieldValueDuplicate":
            return (
                FieldError(path, "FieldValueDuplicate", "Duplicate value") if is_whole else errs.duplicate(path, value)
            )
    if is_whole:
        return FieldError(path, "FieldValueInvalid", f"Invalid value: {message}")
    return errs.invalid(path, value, message)


def rules_of(schema: Schema, *, is_root: bool = False) -> CelRules | None:
    """Return the rules of a schema; None if it has none. `is_root`: the schema is that of a whole resource."""
    if not _has_rules(schema.raw):
        return None
    is_root = is_root or schema.is_embedded_resource
    has_own = bool(schema.raw.get("x-kubernetes-validations"))
    declaration = declaration_of(schema, is_root=is_root) if has_own else None
    rules = CelRules(schema, declaration)
    return None if rules.is_empty else rules


def _has_rules(raw: Any) -> bool:
    if not isinstance(raw, Mapping):
        return False
    if raw.get("x-kubernetes-validations"):
        return True
    return (
        _has_rules(raw.get("items"))
        or _has_rules(raw.get("additionalProperties"))
        or any(map(_has_rules, (raw.get("properties") or {}).values()))
    )
