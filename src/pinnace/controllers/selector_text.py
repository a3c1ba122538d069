"""Label selectors as the messages of Kubernetes' controllers show them."""

from __future__ import annotations

from pinnace.model.typed_objects import LabelSelector


def format_selector(selector: LabelSelector | None) -> str:
    """Format a LabelSelector object as Go's generated String method does."""
    if selector is None:
        return "nil"
    labels = "".join(f"{name}: {value}," for name, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"{{{expression.get('key')} {expression.get('operator')} [{' '.join(expression.get('values') or ())}]}},"
        for expression in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
