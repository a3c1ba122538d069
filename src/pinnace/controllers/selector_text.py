"""Label selectors as the messages of Kubernetes' controllers show them."""

from __future__ import annotations

from pinnace.model.objects import Object


def format_selector(selector: Object | None) -> str:
    """Format a LabelSelector object as Go's generated String method does."""
    if selector is None:
        return "nil"
    labels = "".join(f"{name}: {value}," for name, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"{{{one.get('key')} {one.get('operator')} [{' '.join(one.get('values') or ())}]}},"
        for one in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
