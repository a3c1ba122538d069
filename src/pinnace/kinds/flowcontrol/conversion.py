"""Priority levels as the betas wrote them: other names and defaults of concurrency shares."""

from __future__ import annotations

from pinnace.model.objects import Object

PRESERVE_ZERO_SHARES = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"


def _rename_shares(level: Object, before: str, after: str) -> Object:
    limited = (level.get("spec") or {}).get("limited")
    if isinstance(limited, dict) and before in limited:
        level["spec"]["limited"] = {after if name == before else name: value for name, value in limited.items()}
    return level


def shares_to_nominal(level: Object) -> Object:
    return _rename_shares(level, "assuredConcurrencyShares", "nominalConcurrencyShares")


def shares_from_nominal(level: Object) -> Object:
    return _rename_shares(level, "nominalConcurrencyShares", "assuredConcurrencyShares")


def zero_shares_to_v1(level: Object) -> Object:
    """Convert the annotation by which v1beta3 marks zero shares; no other version shows it."""
    metadata = level.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    kept = annotations.pop(PRESERVE_ZERO_SHARES, None) is not None
    if kept and not annotations:
        metadata.pop("annotations", None)
    limited = (level.get("spec") or {}).get("limited")
    if isinstance(limited, dict) and not limited.get("nominalConcurrencyShares"):
        limited["nominalConcurrencyShares"] = 0 if kept else 30
    return level


def zero_shares_from_v1(level: Object) -> Object:
    limited = (level.get("spec") or {}).get("limited")
    if isinstance(limited, dict) and limited.get("nominalConcurrencyShares") == 0:
        annotations = level.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[PRESERVE_ZERO_SHARES] = ""
    return level
