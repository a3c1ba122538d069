"""Websites without a CRD: an API server of their own, which keeps them in a table of SQLite.

pinnace run examples/07-website-api/website_api.py --dev
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable

from pydantic import field_validator

from pinnace.sdk import CustomResource, Field, Key, Metadata, Model, Operator


class WebsiteSpec(Model):
    git_repo: str = Field(pattern=r"^https://", description="The repository.")  # gitRepo on the wire
    replicas: int = Field(default=1, ge=0, le=100)

    @field_validator("git_repo")
    @classmethod
    def is_real(cls, url: str) -> str:
        if url.endswith("/test.git"):
            raise ValueError("serve something real")  # The server itself refuses it: no webhook is needed.
        return url


class Website(
    CustomResource[WebsiteSpec, None],
    group="extensions.example.com",
    version="v1alpha1",
    short_names=["ws"],
    columns=[".spec.gitRepo", ".spec.replicas"],
    selectable=[".spec.gitRepo"],
):
    """A static site, served from a git repository."""


operator = Operator("website-api")


@operator.serves(Website, refresh=2)  # The shop that fills this table does not tell us of it.
class Websites:
    """The table that the company has always used, with one more column for labels and the like."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(os.environ.get("WEBSITES_DB", ":memory:"), isolation_level=None)
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS website (customer TEXT, site TEXT, repository TEXT, servers INTEGER,"
            " kubernetes TEXT, PRIMARY KEY (customer, site))"
        )

    def get(self, key: Key) -> Website | None:
        row = self.db.execute("SELECT * FROM website WHERE customer = ? AND site = ?", key).fetchone()
        return website(row) if row else None

    def list(self, namespace: str) -> Iterable[Website]:
        rows = self.db.execute("SELECT * FROM website WHERE ? IN ('', customer)", (namespace,))
        return [website(row) for row in rows]

    def create(self, site: Website) -> None:
        values = (*site.key, site.spec.git_repo, site.spec.replicas, json.dumps(site.metadata.to_wire()))
        self.db.execute("INSERT INTO website VALUES (?, ?, ?, ?, ?)", values)

    def update(self, site: Website) -> None:
        values = (site.spec.git_repo, site.spec.replicas, json.dumps(site.metadata.to_wire()), *site.key)
        self.db.execute(
            "UPDATE website SET repository = ?, servers = ?, kubernetes = ? WHERE customer = ? AND site = ?", values
        )

    def delete(self, key: Key) -> None:
        self.db.execute("DELETE FROM website WHERE customer = ? AND site = ?", key)


def website(row: tuple[str, str, str, int, str | None]) -> Website:
    customer, site, repository, servers, kept = row
    metadata = json.loads(kept or "{}") | {"namespace": customer, "name": site}  # Others fill in no such column.
    return Website(metadata=Metadata(**metadata), spec=WebsiteSpec(git_repo=repository, replicas=servers))
