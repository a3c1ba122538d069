"""`pinnace why-denied`: explain why a user may not do something, and what would allow it."""

from __future__ import annotations

import asyncio
import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pinnace.auth.authorization.explanation import Explanation, explain
from pinnace.auth.authorization.rbac import Rbac
from pinnace.auth.sources import FixedObjects
from pinnace.cli.failure import fail
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import KubeconfigError
from pinnace.model import errors
from pinnace.model.authorization import Action
from pinnace.model.users import User, authenticated, service_account_groups, split_service_account

RBAC = "rbac.authorization.k8s.io/v1"
DENIED = 1
_VERBS = (
    *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post", "put", "head"),
    *("use", "bind", "escalate", "impersonate", "approve", "sign", "attest", "proxy", "*"),
)


def why_denied(
    user: Annotated[str, typer.Argument(help="The user's name, or system:serviceaccount:NAMESPACE:NAME.")],
    verb: Annotated[str, typer.Argument(help="get, list, watch, create, update, patch, delete, deletecollection, ...")],
    resource: Annotated[str, typer.Argument(help="pods, deployments.apps, pods/log, or a path such as /metrics.")],
    name: Annotated[str, typer.Argument(help="The name of one object.", show_default=False)] = "",
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="The namespace.", show_default="the context's namespace")
    ] = "",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="In all namespaces.")] = False,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="<str>", help="A group of the user; may be repeated.", show_default=False),
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="The kubeconfig file to use.", show_default=False)] = None,
) -> None:
    """Print the binding that allows a user to do something; if none does, the bindings and the rule that would.

    \b
    Examples:
      pinnace why-denied jane list pods -n shop
      pinnace why-denied jane get secrets db-password -n shop --group developers
      pinnace why-denied system:serviceaccount:default:website-controller create deployments.apps
    """
    question = _Question(verb=verb, resource=resource, name=name, namespace=namespace, all_namespaces=all_namespaces)
    try:
        code = asyncio.run(_answer(_user(user, group or []), question, kubeconfig))
    except (KubeconfigError, errors.ApiError, OSError, ValueError) as error:
        fail(error, code=2)
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """The action to explain, as the command line gives it."""

    verb: str
    resource: str
    name: str
    namespace: str
    all_namespaces: bool


async def _answer(user: User, question: _Question, kubeconfig: Path | None) -> int:
    async with connect(kubeconfig=kubeconfig) as client:
        where = "" if question.all_namespaces else question.namespace or client.namespace
        action = await _action(client, question, where)
        rbac = await _roles(client)
    explanation = explain(rbac, user, action)
    for line in format_explanation(user, action, explanation):
        print(line)
    if (verb := _nearest_verb(question.verb)) and not explanation.allowed_by:
        print(f'pinnace: "{question.verb}" is no verb of Kubernetes; did you mean {verb}?', file=sys.stderr)
    return 0 if explanation.allowed_by else DENIED


def _nearest_verb(verb: str) -> str:
    """Return the known verb that a misspelt one resembles; empty if it is known, or resembles none."""
    return "" if verb in _VERBS else next(iter(difflib.get_close_matches(verb, _VERBS, 1)), "")


def format_explanation(user: User, action: Action, explanation: Explanation) -> Iterator[str]:
    """Yield the lines of an explanation, with the commands that would allow the action."""
    what = _what(action)
    if explanation.allowed_by:
        yield f"{user.name} may {what}: {explanation.allowed_by}."
        return
    yield f"{user.name} may not {what}."
    if explanation.held:
        yield "Bound to the user there, and not enough:"
        yield from (f"  {grant}" for grant in explanation.held)
    if explanation.joinable:
        yield "These bindings allow it for other users; add the user to one of them, or to its group:"
        yield from (f"  {grant}" for grant in explanation.joinable)
    if explanation.bindable:
        yield "These roles allow it; bind the narrowest that fits:"
        yield from (f"  {_binding_command(user, action, kind, role)}" for kind, role in explanation.bindable)
    yield "The least rule that would allow it, in a role that is bound to the user:"
    rule = explanation.rule.on_the_wire
    yield from (f"  {name}: {_join(values)}" for name, values in rule.items())


def _binding_command(user: User, action: Action, kind: str, role: str) -> str:
    account = split_service_account(user.name)
    subject = f"--serviceaccount={account[0]}:{account[1]}" if account is not None else f"--user={user.name}"
    name = re.sub(r"[^a-z0-9.-]+", "-", f"{user.name}-{role}".lower())
    of_role = f"--{kind.lower()}={role}"
    if action.resource and action.namespace:
        return f"kubectl create rolebinding {name} -n {action.namespace} {of_role} {subject}"
    return f"kubectl create clusterrolebinding {name} {of_role} {subject}"


def _what(action: Action) -> str:
    if not action.resource:
        return f"{action.verb} {action.path}"
    resource = f"{action.resource}.{action.group}" if action.group else action.resource
    resource += f"/{action.subresource}" if action.subresource else ""
    which = f' "{action.name}"' if action.name else ""
    return f"{action.verb} {resource}{which} " + (
        f'in namespace "{action.namespace}"' if action.namespace else "in the whole cluster"
    )


def _join(values: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


def _user(name: str, groups: list[str]) -> User:
    if not name:
        raise ValueError("the user's name is empty: give one")
    account = split_service_account(name)
    own = service_account_groups(account[0]) if account is not None else ()
    return authenticated(User(name, (*own, *groups)))


async def _action(client: Client, question: _Question, namespace: str) -> Action:
    verb, resource, name = question.verb, question.resource, question.name
    if resource.startswith("/"):
        return Action(verb, path=resource)
    wanted, _, subresource = resource.partition("/")
    plural, _, group = wanted.partition(".")
    for served in await client.kinds.all():
        if plural in (served.plural, served.singular, *served.short_names) and group in ("", served.kind.group):
            where = namespace if served.namespaced else ""
            return Action(verb, "", served.kind.group, served.plural, subresource, where, name)
    if group or plural == "*":
        return Action(verb, "", group or "*", plural, subresource, namespace, name)
    raise ValueError(f'the server serves no resource "{resource}"; kubectl api-resources lists what it serves')


async def _roles(client: Client) -> Rbac:
    return Rbac(
        roles=FixedObjects(*await client.list(f"{RBAC}/Role")),
        cluster_roles=FixedObjects(*await client.list(f"{RBAC}/ClusterRole")),
        bindings=FixedObjects(*await client.list(f"{RBAC}/RoleBinding")),
        cluster_bindings=FixedObjects(*await client.list(f"{RBAC}/ClusterRoleBinding")),
    )
