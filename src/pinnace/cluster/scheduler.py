"""The scheduler as a process of its own, against any cluster, with one leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from pinnace.client.client import Client
from pinnace.client.exchange import Retries
from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig import Access
from pinnace.controllers.built_in import SYSTEM_NAMESPACE, Unwarned
from pinnace.kinds.pods.resource_metrics import render_pod_resources
from pinnace.model.objects import Object
from pinnace.process.clock import AlarmClock
from pinnace.reconcile.leader import LeaderElection, Terms
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.configuration import InvalidConfiguration, SchedulerConfiguration
from pinnace.scheduler.scheduler import Scheduler
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS

NAME = "kube-scheduler"


@asynccontextmanager
async def scheduler_at(
    access: Access, configuration: SchedulerConfiguration, *, leads: bool = True, clock: AlarmClock | None = None
) -> AsyncIterator[Manager]:
    """Yield a manager that schedules while it runs. Raise InvalidConfiguration.

    With `leads` it works only while this process holds the lease that `leaderElection` names.
    """
    election = configuration.leader_election
    terms = _terms(election)
    async with AsyncExitStack() as stack:
        transport = HttpTransport(access)
        stack.push_async_callback(transport.close)
        client = Client(Unwarned(transport), clock=clock, field_manager=NAME, retries=Retries())
        leader = None
        if leads and election.get("leaderElect", True):
            leader = LeaderElection(
                client,
                election.get("resourceName") or NAME,
                namespace=election.get("resourceNamespace") or SYSTEM_NAMESPACE,
                terms=terms,
            )
        manager = Manager(client, name=NAME, leader=leader)
        manager.add(Scheduler(manager, manager.client, configuration=configuration).controller)
        yield manager


def pod_resources_of(manager: Manager) -> Callable[[], Awaitable[str]]:
    """Return the page /metrics/resources of a scheduler, from the pods that its manager knows."""
    pods = manager.cache("v1/Pod")
    return lambda: render_pod_resources(snapshot.object for snapshot in list(pods.snapshots()))


def _terms(election: Object) -> Terms:
    """Return the durations of a `leaderElection`. Raise InvalidConfiguration."""
    names = {"leaseDuration": "lease_seconds", "renewDeadline": "renew_seconds", "retryPeriod": "retry_seconds"}
    durations: dict[str, float] = {}
    for name, parameter in names.items():
        if election.get(name):
            try:
                durations[parameter] = parse_duration(election[name]).nanos / NANOS
            except (TypeError, ValueError) as error:
                raise InvalidConfiguration(f"leaderElection.{name}: expected a duration such as 15s") from error
    try:
        return Terms(**durations)
    except ValueError as error:
        raise InvalidConfiguration(f"leaderElection: {error}") from error
