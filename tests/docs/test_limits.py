"""The page on limits names the limits that the server has."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinnace.auth.authorization.coverage import _MOST_VERBS, MOST_MISSING
from pinnace.kinds.core.secrets import MOST_BYTES
from pinnace.model.metadata import MOST_ANNOTATION_BYTES
from pinnace.model.patches.json_and_merge import MOST_COPIED_BYTES, MOST_OPERATIONS
from pinnace.network.policy.rules import MOST_RULES
from pinnace.network.services.table import MOST_EXTERNAL
from pinnace.node.agent.containers.variables import LONGEST, MOST_TOTAL
from pinnace.process.stall_watch import STALL_SECONDS
from pinnace.process.supervisor import RECOVERY_SECONDS
from pinnace.process.work_slices import SLICE_SECONDS
from pinnace.schema.golang.decode import MAX_UNKNOWN
from pinnace.schema.golang.json_errors import MAX_DEPTH
from pinnace.schema.golang.patterns import MAX_LENGTH
from pinnace.serving.limits import Limits
from pinnace.serving.read.watch import MAX_BUFFERED
from pinnace.serving.request.body import MAX_CONTAINERS
from pinnace.serving.request.yaml_body import MAX_ALIASED

_PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
_LIMITS = Limits()


@pytest.mark.parametrize(
    "sentence",
    [
        f"| body of a request | {_LIMITS.body >> 20} MiB, ",
        f"limit is {_LIMITS.body}`",
        f"| request line and headers | {_LIMITS.head >> 20} MiB, as in Kubernetes, and {_LIMITS.headers:,} headers |",
        f"| annotations of an object, together | {MOST_ANNOTATION_BYTES >> 10} KiB, ",
        f"| data of a ConfigMap or Secret | {MOST_BYTES >> 20} MiB, ",
        f"{MOST_OPERATIONS:,}, as in Kubernetes; the values that they copy: {MOST_COPIED_BYTES >> 20} MiB |",
        f"| nesting of a JSON or YAML body | {MAX_DEPTH} levels ",
        f"| objects and lists in a body | {MAX_CONTAINERS:,} together",
        f"| values that YAML aliases add | {MAX_ALIASED:,} |",
        f"| pattern of a schema | {MAX_LENGTH:,} characters |",
        f"| {MOST_MISSING} resources or paths, {_MOST_VERBS} verbs of each |",
        f"| pairs of an external address and a port of a Service | {MOST_EXTERNAL:,} |",
        f"are replaced | {LONGEST >> 10} KiB; {MOST_TOTAL >> 20} MiB together, ",
        f"a port of its network policies | {MOST_RULES:,} |",
        f"| unknown fields that are named in the answer | {MAX_UNKNOWN} |",
        f"| sends its headers slowly | {_LIMITS.head_time:g} s |",
        f"| sends its body slowly | {_LIMITS.body_time:g} s |",
        f"| sends nothing between two requests | {_LIMITS.idle_time:g} s |",
        f"| reads nothing of an answer or a watch that waits to be sent | {_LIMITS.stall_time:g} s |",
        f"| watches, and is more than {MAX_BUFFERED >> 20} MiB behind |",
        f"in pieces of {SLICE_SECONDS * 1000:g} ms",
        f"for more than {STALL_SECONDS:g} s is logged",
        f"until it has run for {RECOVERY_SECONDS:g} s",
    ],
    ids=lambda sentence: sentence.strip("| ").partition(" |")[0],
)
def test_the_page_names_the_limit(sentence: str) -> None:
    assert sentence in _PAGE
