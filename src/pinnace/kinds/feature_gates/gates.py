"""Feature gates: which features a minor version has, and which of them are on."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_ALL = {"AllAlpha": "alpha", "AllBeta": "beta"}
"""The gates that switch all gates of a stage, unless these are named themselves."""


class InvalidFeatureGates(ValueError):
    """The text is no list of feature gates of this minor version; the message is Kubernetes'."""


@dataclass(frozen=True, slots=True)
class GateStage:
    """The state of a gate from one minor version on."""

    minor: int
    name: str
    """alpha, beta, ga, deprecated or removed."""
    is_on: bool
    is_locked: bool


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    stages: tuple[GateStage, ...]
    needs: tuple[str, ...] = ()

    def stage(self, minor: int) -> GateStage | None:
        """Return the state of the gate in a minor version; None before its first and after its last."""
        stage = self._last_stage(minor)
        return None if stage is None or stage.name == "removed" else stage

    def default(self, minor: int) -> bool:
        """Return the default in a minor version. The feature of a gate that was removed stays as it was then."""
        states = [stage.is_on for stage in self.stages if stage.minor <= minor and stage.name != "removed"]
        return bool(states) and states[-1]

    def _last_stage(self, minor: int) -> GateStage | None:
        return next((stage for stage in reversed(self.stages) if stage.minor <= minor), None)


class FeatureGates:
    """The values of all gates in one minor version."""

    def __init__(self, minor: str, values: Mapping[str, bool] | None = None) -> None:
        """Raise InvalidFeatureGates."""
        self.minor = minor
        self._number = int(minor.partition(".")[2])
        self._values = dict(values or {})
        self._check()

    @classmethod
    def parse(cls, minor: str, text: str) -> FeatureGates:
        """Read "A=true,B=false". Raise InvalidFeatureGates."""
        return cls(minor, dict(_pairs(text)))

    def is_on(self, name: str) -> bool:
        """Return whether a feature is on: as set, or by default. One whose gate was removed stays as it was then."""
        value = self._values.get(name)
        if value is not None:
            return value
        gate = known_gates()[name]
        stage = gate.stage(self._number)
        if stage is None or stage.is_locked:
            return gate.default(self._number)
        everything = next((all_ for all_, name_ in _ALL.items() if name_ == stage.name), "")
        return self._values.get(everything, stage.is_on)

    def stages(self) -> Iterator[tuple[str, str, bool]]:
        """Yield name, stage and value of every gate of this version."""
        for all_, stage in _ALL.items():
            yield all_, stage, self._values.get(all_, False)
        for name, gate in known_gates().items():
            if (stage_ := gate.stage(self._number)) is not None:
                yield name, stage_.name, self.is_on(name)

    @property
    def warnings(self) -> list[str]:
        """The warnings about gates that were set although they are deprecated or generally available."""
        warnings = []
        for name in self._values:
            stage = None if name in _ALL else known_gates()[name].stage(self._number)
            if stage is not None and stage.name in ("ga", "deprecated"):
                kind = "GA" if stage.name == "ga" else stage.name
                warnings.append(f"setting {kind} feature gate {name}; it will be removed in a future release")
        return warnings

    def __str__(self) -> str:
        return ",".join(f"{name}={str(value).lower()}" for name, value in sorted(self._values.items()))

    def _check(self) -> None:
        gates = known_gates()
        for name, value in self._values.items():
            if name in _ALL:
                continue
            stage = gates[name].stage(self._number) if name in gates else None
            if stage is None:
                raise InvalidFeatureGates(self._unknown(name))
            if stage.is_locked and value != stage.is_on:
                wanted, locked = str(value).lower(), str(stage.is_on).lower()
                raise InvalidFeatureGates(f"cannot set feature gate {name} to {wanted}, feature is locked to {locked}")
        missing = list(self._missing_needs()) if self._values else []
        if missing:
            raise InvalidFeatureGates(missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]")

    def _missing_needs(self) -> Iterator[str]:
        for name, gate in known_gates().items():
            if gate.needs and gate.stage(self._number) is not None and self.is_on(name):
                off = " ".join(needed for needed in gate.needs if not self.is_on(needed))
                if off:
                    yield f"{name} is enabled, but depends on features that are disabled: [{off}]"

    def _unknown(self, name: str) -> str:
        gates = known_gates()
        message = f"unrecognized feature gate: {name}"
        if name in gates:
            first = gates[name].stages[0].minor
            when = f"came in 1.{first}" if first > self._number else "was removed before"
            return f"{message} (this is Kubernetes {self.minor}; the gate {when})"
        here = [known for known, gate in gates.items() if gate.stage(self._number) is not None]
        near = difflib.get_close_matches(name, here, 3, 0.7)
        return f"{message}; near names are {', '.join(near)}" if near else message


def _pairs(text: str) -> Iterator[tuple[str, bool]]:
    for pair in text.split(","):
        if not pair:
            continue
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidFeatureGates(f"missing bool value for {name}")
        if value not in _TRUE and value not in _FALSE:
            reason = f'strconv.ParseBool: parsing "{value}": invalid syntax'
            raise InvalidFeatureGates(f"invalid value of {name}={value}, err: {reason}")
        yield name, value in _TRUE


@cache
def known_gates() -> dict[str, Gate]:
    """Return every gate of every minor version, by name."""
    return {gate.name: gate for gate in map(_parse_gate, _lines("gates.txt"))}


@cache
def guarded_fields() -> dict[str, str]:
    """Return the gate of each guarded field, by group, definition and field: "core.PodSpec.hostUsers"."""
    guards = (line.partition(": ") for line in _lines("fields.txt"))
    return {field: name for name, _, fields in guards for field in fields.split()}


def _lines(name: str) -> Iterator[str]:
    for line in Path(__file__).with_name(name).read_text().splitlines():
        if not line.startswith("#"):
            yield line


def _parse_gate(line: str) -> Gate:
    name, _, rest = line.partition(": ")
    stages, _, needs = rest.partition("; needs ")
    return Gate(name, tuple(map(_parse_stage, stages.split(", "))), tuple(needs.split(", ")) if needs else ())


@cache  # Many gates share a stage.
def _parse_stage(text: str) -> GateStage:
    minor, stage, *flags = text.split(" ")
    return GateStage(int(minor.partition(".")[2]), stage, "on" in flags, "locked" in flags)
