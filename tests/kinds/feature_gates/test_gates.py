"""Feature gates: their defaults by minor version, what may be set, and the errors."""

from __future__ import annotations

import pytest

from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.feature_gates.gates import FeatureGates, InvalidFeatureGates, guarded_fields, known_gates


@pytest.mark.parametrize(
    ("gate", "minor", "is_on"),
    [
        ("UserNamespacesSupport", "1.32", False),
        ("UserNamespacesSupport", "1.33", True),
        ("SidecarContainers", "1.28", False),
        ("SidecarContainers", "1.29", True),
        ("HPAScaleToZero", "1.36", False),
        ("HPAScaleToZero", "1.37", True),
        ("AdmissionWebhookMatchConditions", "1.37", True),  # The gate is gone, the feature stays.
    ],
)
def test_a_gate_has_the_default_of_its_minor_version(gate: str, minor: str, is_on: bool) -> None:
    assert FeatureGates(minor).is_on(gate) is is_on


def test_gates_are_set_by_name_and_by_stage() -> None:
    gates = FeatureGates.parse("1.36", "AllAlpha=true,HPAScaleToZero=false,,APIResponseCompression=F")
    assert gates.is_on("VolumeLimitScaling")
    assert not gates.is_on("HPAScaleToZero")
    assert not gates.is_on("APIResponseCompression")
    assert FeatureGates.parse("1.36", str(gates)).is_on("VolumeLimitScaling")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Nonsense=true", "unrecognized feature gate: Nonsense"),
        ("HPAScaleToZeros=true", "unrecognized feature gate: HPAScaleToZeros; near names are HPAScaleToZero"),
        (
            "EmptyDirVolumeMode=true",
            "unrecognized feature gate: EmptyDirVolumeMode (this is Kubernetes 1.36; the gate came in 1.37)",
        ),
        ("AppArmor=true", "unrecognized feature gate: AppArmor (this is Kubernetes 1.36; the gate was removed before)"),
        ("HPAScaleToZero", "missing bool value for HPAScaleToZero"),
        (
            "HPAScaleToZero=yes",
            'invalid value of HPAScaleToZero=yes, err: strconv.ParseBool: parsing "yes": invalid syntax',
        ),
        (
            "UserNamespacesSupport=false",
            "cannot set feature gate UserNamespacesSupport to false, feature is locked to true",
        ),
        (
            "DRADeviceTaintRules=true,DRADeviceTaints=false",
            "DRADeviceTaintRules is enabled, but depends on features that are disabled: [DRADeviceTaints]",
        ),
    ],
)
def test_gates_that_cannot_be_set_are_refused_in_the_words_of_kubernetes(text: str, message: str) -> None:
    with pytest.raises(InvalidFeatureGates) as refused:
        FeatureGates.parse("1.36", text)
    assert str(refused.value).startswith(message)


def test_gates_that_will_go_are_warned_of() -> None:
    gates = FeatureGates.parse("1.36", "UserNamespacesSupport=true,HPAScaleToZero=true")
    assert gates.warnings == [
        "setting GA feature gate UserNamespacesSupport; it will be removed in a future release",
    ]


@pytest.mark.parametrize("minor", minors())
def test_the_defaults_of_a_minor_version_satisfy_what_its_gates_need(minor: str) -> None:
    FeatureGates(minor, {"AllAlpha": False})
    assert len(list(FeatureGates(minor).stages())) > 100


def test_every_guarded_field_exists_and_every_guard_is_a_gate() -> None:
    fields: set[str] = set()
    for minor in minors():
        definitions = Definitions.load(minor)
        for name in definitions.names():
            parts = name.split(".")
            if len(parts) > 3:
                fields |= {
                    f"{parts[-3]}.{parts[-1]}.{field}" for field in definitions.schema(name).raw.get("properties", {})
                }
    assert set(guarded_fields()) <= fields
    assert set(guarded_fields().values()) <= set(known_gates())
