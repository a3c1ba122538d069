"""/metrics/slis: the results of the health checks, counted whenever a health page is read."""

from __future__ import annotations

from collections import Counter

from pinnace.model.exposition import render_samples


class HealthResults:
    """The last result of each check on each page, and how often it passed and failed."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], bool] = {}
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def observe(self, name: str, page: str, *, is_passed: bool) -> None:
        self._last[name, page] = is_passed
        self._counts[name, "success" if is_passed else "error", page] += 1

    def text(self) -> str:
        """The metrics in Prometheus' text format, with the names that Kubernetes gives them."""
        last = (
            ((("name", name), ("type", page)), float(passed)) for (name, page), passed in sorted(self._last.items())
        )
        counts = (
            ((("name", name), ("status", status), ("type", page)), float(count))
            for (name, status, page), count in sorted(self._counts.items())
        )
        lines = [
            *render_samples("kubernetes_healthcheck", "[STABLE] Whether a health check passed, 1 or 0.", "gauge", last),
            *render_samples(
                "kubernetes_healthchecks_total", "[STABLE] The results of all health checks.", "counter", counts
            ),
        ]
        return "\n".join([*lines, ""])
