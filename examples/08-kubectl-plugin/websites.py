"""`kubectl websites`: the websites of a namespace, and whether they are up. One name shows what belongs to it.

pinnace plugin install examples/08-kubectl-plugin/websites.py
kubectl websites --help
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pinnace.client.client import Client
from pinnace.sdk.kubectl import Plugin, names_of

Object = dict[str, Any]
WEBSITE = "extensions.example.com/v1/Website"

plugin = Plugin(
    "websites",
    version="0.1.0",
    description="Shows websites and whether they are up.",
    homepage="https://example.com/kubectl-websites",
)


@plugin.command()
async def websites(
    client: Client,
    name: Annotated[
        str, typer.Argument(help="Only this one, with all that belongs to it.", autocompletion=names_of(WEBSITE))
    ] = "",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Those of all namespaces.")] = False,
) -> None:
    """Show websites and whether they are up."""
    if name:
        site = await client.get(WEBSITE, name, namespace=client.namespace)
        print(f"{name}: {site['spec']['gitRepo']}, {state(site)}")
        for kind in ("apps/v1/Deployment", "v1/Service"):
            for obj in await client.list(kind, namespace=client.namespace):
                if any(owner["uid"] == site["metadata"]["uid"] for owner in obj["metadata"].get("ownerReferences", ())):
                    print(f"  {kind.rpartition('/')[2].lower()}/{obj['metadata']['name']}")
        return
    sites = await client.list(WEBSITE, namespace="" if all_namespaces else client.namespace)
    if not sites:
        print("There are no websites here." if all_namespaces else f"There are no websites in {client.namespace}.")
    for site in sites:
        where = f"{site['metadata']['namespace']}/" if all_namespaces else ""
        print(f"{where}{site['metadata']['name']:20} {state(site):12} {site['spec']['gitRepo']}")


def state(site: Object) -> str:
    ready, wanted = site.get("status", {}).get("ready", 0), site["spec"].get("replicas", 1)
    return "up" if ready >= wanted else f"{ready} of {wanted} up"


if __name__ == "__main__":
    plugin()
