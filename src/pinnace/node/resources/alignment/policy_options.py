"""Reads the options of the CPU and topology manager policies: their stages, feature gates and values."""

from __future__ import annotations

from collections.abc import Mapping

from pinnace.kinds.feature_gates.gates import FeatureGates

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_STAGES = {"alpha": "Alpha", "beta": "Beta"}


def check_options(manager: str, options: Mapping[str, str], stages: Mapping[str, str], gates: FeatureGates) -> None:
    """Check that options exist, and that the gates of their stages are on. Raise ValueError.

    `manager` is the name of the manager in kubelet's messages, such as CPU Manager.
    """
    for name in options:
        if name not in stages:
            raise ValueError(f'unknown {manager} Policy option: "{name}"')
        stage = _STAGES.get(stages[name])
        if stage is not None and not gates.is_on(f"{manager.replace(' ', '')}Policy{stage}Options"):
            raise ValueError(f'{manager} Policy {stage}-level Options not enabled, but option "{name}" provided')


def read_flag(options: Mapping[str, str], name: str) -> bool:
    """Return the value of an option that is off unless it is set. Raise ValueError."""
    text = options.get(name, "false")
    if text not in _TRUE | _FALSE:
        raise ValueError(f'bad value for option "{name}": strconv.ParseBool: parsing "{text}": invalid syntax')
    return text in _TRUE
