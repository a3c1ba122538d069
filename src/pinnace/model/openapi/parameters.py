"""The query parameters of the operations in an OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Parameters = Mapping[str, tuple[str, str]]
"""Type and description, by name."""

_UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"
QUERY: dict[str, tuple[str, str]] = {
    "allowWatchBookmarks": ("boolean", "Whether a watch may send events of type BOOKMARK."),
    "continue": ("string", "Where a list goes on: the token from the page before."),
    "dryRun": ("string", "All: go through every step of the write, but do not store the result."),
    "fieldManager": ("string", "Who makes this change, for the record of field ownership."),
    "fieldSelector": ("string", "Restrict the list of returned objects by their fields: metadata.name=web."),
    "fieldValidation": ("string", "What to do about unknown and repeated fields: Ignore, Warn or Strict."),
    "force": ("boolean", "Of an apply: take over fields that others own."),
    "gracePeriodSeconds": ("integer", "How long the object may take to end; 0 is at once."),
    "labelSelector": ("string", "Restrict the list of returned objects by their labels: app=web,tier!=cache."),
    "limit": ("integer", "How many objects a page of a list holds at most."),
    "orphanDependents": ("boolean", "Deprecated, see propagationPolicy."),
    "propagationPolicy": ("string", "What becomes of dependents: Orphan, Background or Foreground."),
    "resourceVersion": ("string", "The revision to answer from, or to watch from."),
    "resourceVersionMatch": ("string", "How resourceVersion constrains a list: Exact or NotOlderThan."),
    "sendInitialEvents": ("boolean", "Whether a watch begins with the objects that are there."),
    "timeoutSeconds": ("integer", "How long a list or watch may last."),
    "watch": ("boolean", "Watch for changes to the described resources instead of listing them."),
}
STREAM_QUERY: dict[str, tuple[str, str]] = {
    "command": ("string", "The command to run, without a shell: one parameter for each argument."),
    "container": ("string", "The container of the pod; its only one if this is empty."),
    "follow": ("boolean", "Follow the log until the container ends."),
    "insecureSkipTLSVerifyBackend": ("boolean", "Do not verify the certificate of the kubelet."),
    "limitBytes": ("integer", "The most bytes of the log to return."),
    "path": ("string", "The path of the request to the target."),
    "ports": ("integer", "The ports to forward, for WebSocket connections."),
    "previous": ("boolean", "Return the log of the container before its last restart."),
    "sinceSeconds": ("integer", "Return the log of this many last seconds."),
    "stderr": ("boolean", "Stream the standard error."),
    "stdin": ("boolean", "Stream the standard input."),
    "stdout": ("boolean", "Stream the standard output."),
    "stream": ("string", "The stream of the log to return: All, Stdout or Stderr."),
    "tailLines": ("integer", "Return this many last lines of the log."),
    "timestamps": ("boolean", "Begin each line of the log with its time."),
    "tty": ("boolean", "Allocate a terminal."),
}
STREAMS = {
    "attach": ("container", "stderr", "stdin", "stdout", "tty"),
    "exec": ("command", "container", "stderr", "stdin", "stdout", "tty"),
    "log": (
        "container", "follow", "insecureSkipTLSVerifyBackend", "limitBytes", "previous", "sinceSeconds", "stream",
        "tailLines", "timestamps",
    ),
    "portforward": ("ports",),
    "proxy": ("path",),
}  # fmt: skip
"""The query parameters of subresources that stream."""
LIST = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "shardSelector", "timeoutSeconds", "watch",
)  # fmt: skip
WRITE = ("dryRun", "fieldManager", "fieldValidation")
DELETE = ("dryRun", "gracePeriodSeconds", _UNSAFE, "orphanDependents", "propagationPolicy")
DELETE_MANY = (
    "continue", "dryRun", "fieldSelector", "gracePeriodSeconds", _UNSAFE, "labelSelector", "limit", "orphanDependents",
    "propagationPolicy", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "shardSelector",
    "timeoutSeconds",
)  # fmt: skip


def query_of_minor(minor: str, delete_options: Mapping[str, Any]) -> Parameters:
    """Return the parameters that a minor version of Kubernetes has. Those of deletions are fields of DeleteOptions."""
    fields = delete_options["properties"]
    query = dict(QUERY)
    for name in DELETE:
        if name in fields:
            query[name] = (query[name][0] if name in query else fields[name]["type"], fields[name]["description"])
    if int(minor.partition(".")[2]) >= 36:
        query["shardSelector"] = ("string", "Accepted and ignored, as in Kubernetes unless its feature gate is on.")
    return query
