"""The command of an operator's image, with what pinnace-sdk has alone: no cluster, no reload, no questions.

pinnace-operator run website.py --no-install --leader-election
pinnace-operator why website/blog -n web
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from pinnace import __version__
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.credentials import NoCredentials
from pinnace.client.kubeconfig import KubeconfigError, find_access
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.sdk.command.operator_files import NoOperator, extension_in, target_of
from pinnace.sdk.command.why import NoAnswer, explain
from pinnace.sdk.extension import Extension
from pinnace.sdk.handlers.permissions import missing_permission
from pinnace.sdk.handlers.threads import MAX_THREADS
from pinnace.sdk.operator.logs import LEVELS, configure_logs
from pinnace.sdk.operator.operator import Operator
from pinnace.sdk.operator.process import run_until_signal
from pinnace.sdk.operator.runner import RunParameters
from pinnace.sdk.operator.shared_resources import StartupFailed
from pinnace.sdk.operator.why_answers import answer_why
from pinnace.sdk.resources.readiness import NotEstablished
from pinnace.sdk.resources.schemas import NotStructural

START_FAILURES = (
    NoOperator,
    NotStructural,
    NotEstablished,
    StartupFailed,
    KubeconfigError,
    NoCredentials,
    ConnectionLost,
    errors.ApiError,
)
"""The errors that keep an operator from starting. `describe_failure` words them."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Exit with 1 and one line on standard error if it fails."""
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.command == "why":
            print(
                explain(parsed.words, namespace=parsed.namespace, operator=parsed.operator, output=parsed.output),
                end="",
            )
        else:
            configure_logs(level=parsed.log_level, form=parsed.log_format)
            _run(parsed)
    except (NoAnswer, ValueError) as error:
        sys.exit(f"error: {error}")
    except START_FAILURES as error:
        sys.exit(f"error: {describe_failure(error)}")


def describe_failure(error: Exception) -> str:
    """Return the message of one of START_FAILURES, with the missing permission if that is the reason."""
    if isinstance(error, errors.Forbidden):
        return str(missing_permission(error) or error)
    if isinstance(error, errors.Unauthorized):
        return f"the server does not accept these credentials ({error}); log in again, or choose another --context"
    return str(error)


def _run(parsed: Namespace) -> None:
    operator = extension_in(target_of(parsed.file, parsed.module))
    options = RunParameters(
        install=not parsed.no_install,
        leader_election=parsed.leader_election,
        webhook_host=parsed.webhook_host,
        webhook_port=parsed.webhook_port,
        webhook_service=parsed.webhook_service,
        metrics_port=parsed.metrics_port,
    )
    if isinstance(operator, Operator):
        options["max_threads"] = parsed.max_threads
    asyncio.run(_serve(operator, parsed, options))


async def _serve(operator: Extension, parsed: Namespace, options: RunParameters) -> None:
    access = find_access(path=parsed.kubeconfig, context=parsed.context)
    async with connect(access, namespace=parsed.namespace, field_manager=operator.name) as client:
        await run_until_signal(_work(operator, client, options, access.server))


async def _work(operator: Extension, client: Client, options: RunParameters, server: str) -> None:
    async with operator.running(client, **options) as manager, answer_why(manager, server=server):
        print(f"{operator.name} is running", flush=True)
        await asyncio.get_running_loop().create_future()


def _parser() -> ArgumentParser:
    parser = ArgumentParser("pinnace-operator", description="Run an operator; explain why it reconciled an object.")
    parser.add_argument("--version", action="version", version=f"pinnace-sdk {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the operator in a file until SIGTERM or Ctrl-C")
    run.add_argument("file", nargs="?", default="", help="the file of the operator; file.py:name if it has several")
    run.add_argument("-m", "--module", default="", help="a module instead of a file: package.module[:name]")
    run.add_argument("--kubeconfig", type=Path, help="the kubeconfig to use; without one, that of the pod")
    run.add_argument("--context", default="", help="the context to use")
    run.add_argument("-n", "--namespace", default="", help="the namespace of its lease")
    run.add_argument("--no-install", action="store_true", help="do not install CRDs and webhook configurations")
    run.add_argument("--leader-election", action="store_true", help="work only while this replica holds the lease")
    run.add_argument("--webhook-host", default="127.0.0.1", help="the address to serve webhooks on")
    run.add_argument("--webhook-port", type=int, default=0, help="the port for webhooks; 0 takes a free one")
    run.add_argument("--webhook-service", default="", help="the Service of the webhooks, as namespace/name")
    run.add_argument("--metrics-port", type=int, help="serve /metrics, /healthz and /readyz on this port")
    run.add_argument("--max-threads", type=int, default=MAX_THREADS, help="the most threads for `def` handlers")
    run.add_argument("--log-format", default="text", choices=("text", "json"))
    run.add_argument("--log-level", default="info", choices=LEVELS)

    why = commands.add_parser("why", help="explain why an operator of this machine reconciled an object")
    why.add_argument("words", nargs="*", metavar="KIND/NAME", help="without an object, the last reconciled ones")
    why.add_argument("-n", "--namespace", default="default", help="the namespace of the object")
    why.add_argument("--operator", default="", help="ask only the operator with this name")
    why.add_argument("-o", "--output", default="", help="json: print everything that is known")
    return parser


if __name__ == "__main__":
    main()
