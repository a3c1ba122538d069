"""The verb and the resource of a request to an API server."""

from __future__ import annotations

from dataclasses import dataclass

from pinnace.model.objects import Object


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The verb of a request, and its resource or the page at `path`."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    path: str = ""

    def attributes(self) -> Object:
        """Return the attributes of a SubjectAccessReview."""
        if self.path:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        values = {
            name: getattr(self, name)
            for name in ("verb", "group", "version", "resource", "namespace", "name", "subresource")
        }
        return {"resourceAttributes": {name: value for name, value in values.items() if value}}
