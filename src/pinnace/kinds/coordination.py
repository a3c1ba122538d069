"""coordination.k8s.io: Leases and LeaseCandidates."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pinnace.kinds.cells import AGE, NAME, at, string
from pinnace.kinds.rows import GA, Row, old, on_request
from pinnace.kinds.validation.fields import validate_immutable, validate_name, validate_not_negative
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, not_supported, required
from pinnace.model.objects import NOTHING
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import Lease, LeaseCandidate, LeaseCandidateSpec, LeaseSpec
from pinnace.schema.golang.numbers import parse_int

STRATEGIES = ("OldestEmulationVersion",)
NOT_A_VERSION = "must be a valid semantic version"

_number = "(0|[1-9][0-9]*)"
_semver = re.compile(
    rf"{_number}\.{_number}\.{_number}"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
).fullmatch
_GREATEST = 2**64 - 1
_Version = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]
_ZERO: _Version = (0, 0, 0, True, ())


def _default_lease(lease: Lease) -> None:
    lease.setdefault("spec", {})


def _prepare_lease(lease: Lease, old: Lease | None) -> None:
    """Drop the fields of coordinated leader election, which is off by default."""
    spec, before = lease.get("spec") or {}, (old or NOTHING).get("spec") or {}
    for field in ("strategy", "preferredHolder"):
        if field in spec and field not in before:
            del spec[field]


def _validate_lease(lease: Lease, old: Lease | None) -> Iterator[FieldError]:
    spec: LeaseSpec = lease.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    yield from validate_not_negative(spec.get("leaseTransitions"), "spec.leaseTransitions")
    if spec.get("strategy") is not None:
        yield from _validate_strategy(spec["strategy"])


def _validate_candidate(candidate: LeaseCandidate, old: LeaseCandidate | None) -> Iterator[FieldError]:
    spec: LeaseCandidateSpec = candidate.get("spec") or {}
    emulated, binary, strategy = (spec.get(name, "") for name in ("emulationVersion", "binaryVersion", "strategy"))
    if not spec.get("leaseName"):
        yield required("spec.leaseName")
    emulation_version, binary_version = _version(emulated), _version(binary)
    if emulated and emulation_version is None:
        yield invalid("spec.emulationVersion", emulated, NOT_A_VERSION)
    if not binary:
        yield required("spec.binaryVersion")
    elif binary_version is None:
        yield invalid("spec.binaryVersion", binary, NOT_A_VERSION)
    if binary and emulated and (binary_version or _ZERO) < (emulation_version or _ZERO):
        yield invalid("spec.binaryVersion", binary, "must be greater than or equal to `emulationVersion`")
    if not strategy:
        yield required("spec.strategy")
    else:
        if strategy == "OldestEmulationVersion" and (emulation_version or _ZERO) == _ZERO:
            yield required("spec.emulationVersion", "must be specified when `strategy` is 'OldestEmulationVersion'")
        yield from _validate_strategy(strategy)
    if old is not None:
        before = (old.get("spec") or {}).get("leaseName", "")
        yield from validate_immutable(spec.get("leaseName", ""), before, "spec.leaseName")


def _validate_strategy(strategy: str) -> Iterator[FieldError]:
    path = "spec.strategy.strategy"  # Kubernetes repeats this error, too.
    if "/" in strategy:
        yield from validate_name(strategy, names.qualified_name, path)
    elif strategy not in STRATEGIES:
        yield not_supported(path, strategy, STRATEGIES)


def _version(text: str) -> _Version | None:
    match = _semver(text)
    if match is None:
        return None
    major, minor, patch = (parse_int(number, greatest=_GREATEST) for number in match.group(1, 2, 3))
    if major is None or minor is None or patch is None:
        return None
    parts: list[tuple[bool, int, str]] = []
    for part in match[4].split(".") if match[4] else ():
        number = parse_int(part, greatest=_GREATEST) if part.isdigit() else 0
        if number is None:
            return None
        parts.append((not part.isdigit(), number, part))
    return major, minor, patch, not parts, tuple(parts)


GROUP = "coordination.k8s.io"

ROWS = (
    Row(
        group=GROUP,
        name="LeaseCandidate",
        plural="leasecandidates",
        columns=(
            NAME,
            string("LeaseName", "io.k8s.api.coordination.v1alpha2.LeaseCandidateSpec.leaseName", at("spec.leaseName")),
            string("BinaryVersion", "", at("spec.binaryVersion")),
            string("EmulationVersion", "", at("spec.emulationVersion")),
            AGE,
        ),
        versions=(
            on_request("v1beta1", deprecated="1.36", removed="1.39"),
            on_request("v1alpha2", deprecated="1.35", removed="1.38"),
            on_request("v1alpha1"),
        ),
        strategy=Strategy(
            validate=_validate_candidate,
            name_rule=names.config_key,
            may_create_on_update=True,
            may_update_unconditionally=False,
        ),
    ),
    Row(
        group=GROUP,
        name="Lease",
        plural="leases",
        columns=(
            NAME,
            string("Holder", "io.k8s.api.coordination.v1.LeaseSpec.holderIdentity", at("spec.holderIdentity")),
            AGE,
        ),
        versions=(GA, old("v1beta1", deprecated="1.19", removed="1.22", replacement="coordination.k8s.io/v1")),
        strategy=Strategy(
            default=_default_lease,
            qualified_finalizers=False,
            prepare=_prepare_lease,
            validate=_validate_lease,
            may_create_on_update=True,
            may_update_unconditionally=False,
        ),
    ),
)
