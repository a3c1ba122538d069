"""The errors that a reconcile may raise on purpose, and the reports of each failure: a log record and an Event."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pinnace.client.status_errors import is_namespace_terminating
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.reconcile.events import EventRecorder, EventType
from pinnace.reconcile.informer import Informer

_HANDLER = "_pinnace_handler"
_MOST_TERMINATING = 100
"""Terminating namespaces to remember, so that each is logged once."""
_log = logging.getLogger(__name__)


class Permanent(Exception):
    """Raise it in a reconcile that fails until the object changes: it is not retried.

    `event` is the reason of the Event that reports it, one word in CamelCase.
    """

    def __init__(self, *args: object, event: str = "ReconcileFailed") -> None:
        super().__init__(*args)
        self.event = event


class Reported(Exception):
    """Raise it in a reconcile that has recorded its own Event or condition: it is retried without another Event."""


class Retry(Exception):
    """Raise it in a reconcile that must wait: `raise Retry(after=30, reason="the database is starting")`.

    It is called again after so many seconds, or with the back-off of failures if none are given. That is no error:
    the log and an Event have the reason, without a traceback. `event` is the reason of that Event, in CamelCase.
    """

    def __init__(self, *, after: float = 0.0, reason: str = "", event: str = "Retrying") -> None:
        super().__init__(reason)
        self.after = after
        self.reason = reason
        self.event = event


def set_handler(error: Exception, name: str) -> None:
    """Note which handler raised an error, for the log record of the controller."""
    vars(error).setdefault(_HANDLER, name)


def handler_of(error: Exception) -> str:
    """Return the name of the handler that raised an error, or nothing if none was noted."""
    return str(vars(error).get(_HANDLER, ""))


class FailureReports:
    """Logs the failures of one controller, and records them in Events of the objects that it reconciles."""

    def __init__(self, controller: str, own: Sequence[Informer], recorder: EventRecorder) -> None:
        """`own` are the informers of the reconciled objects."""
        self._controller = controller
        self._own = own
        self._recorder = recorder
        self._terminating: dict[str, None] = {}

    def report_end(self, key: Key, error: Exception, message: str) -> None:
        """Report a failure after which the object is not reconciled until it changes."""
        _log.error("%s cannot reconcile %s: %s", self._controller, key, message, extra=self._fields(key, error))
        self._record(key, message, reason=getattr(error, "event", "ReconcileFailed"))

    def report_retry(self, key: Key, error: Exception, failure: str, *, seconds: float, is_new: bool) -> None:
        """Report a failure that is retried in so many seconds. `is_new`: the last call did not fail in this way."""
        name, fields = self._controller, self._fields(key, error)
        if isinstance(error, errors.Conflict) and not isinstance(error, errors.ApplyConflict):
            # Another client has written meanwhile. That is no error: retry.
            _log.debug("%s met a conflict at %s, again in %.3f s: %s", name, key, seconds, error, extra=fields)
        elif self._is_gone(key, error):
            _log.debug("%s found %s deleted, again in %.3f s: %s", name, key, seconds, error, extra=fields)
        elif isinstance(error, Reported):
            _log.info("%s failed at %s, again in %.3f s: %s", name, key, seconds, error, extra=fields)
        elif is_namespace_terminating(error):
            self._log_terminating(key, error)
        else:
            if is_new:
                _log.error("%s failed at %s, again in %.3f s", name, key, seconds, exc_info=error, extra=fields)
            else:  # The traceback was logged the first time.
                _log.error("%s failed at %s, again in %.3f s: %s", name, key, seconds, failure, extra=fields)
            self._record(key, failure)

    def report_delay(self, key: Key, retry: Retry, *, seconds: float) -> None:
        """Report a reconcile that has asked to be called again in so many seconds."""
        fields = self._fields(key, retry)
        _log.info("%s waits at %s, again in %.3f s: %s", self._controller, key, seconds, retry.reason, extra=fields)
        if retry.reason:
            self._record(key, retry.reason, type="Normal", reason=retry.event)

    def _fields(self, key: Key, error: Exception) -> dict[str, str]:
        """Return the fields of a log record about an object, with the handler that raised the error if it is known."""
        fields, handler = {"object": str(key), "controller": self._controller}, handler_of(error)
        return fields | {"handler": handler} if handler else fields

    def _is_gone(self, key: Key, error: Exception) -> bool:
        """Whether the reconciled object itself was deleted meanwhile: the next call finds that out."""
        if not isinstance(error, errors.NotFound) or error.details.get("name") != key.name:
            return False
        kinds = [informer.scope.kind for informer in self._own]
        place = error.details.get("group", ""), str(error.details.get("kind", ""))
        return any(place[0] == kind.group and place[1].startswith(kind.name.lower()) for kind in kinds)

    def _log_terminating(self, key: Key, error: Exception) -> None:
        # The object is deleted next, which ends the retries. An Event would be denied as well.
        level = logging.DEBUG if key.namespace in self._terminating else logging.INFO
        self._terminating[key.namespace] = None
        if len(self._terminating) > _MOST_TERMINATING:
            del self._terminating[next(iter(self._terminating))]
        fields = self._fields(key, error)
        _log.log(level, "%s creates nothing more for %s: %s", self._controller, key, error, extra=fields)

    def _record(self, key: Key, message: str, *, type: EventType = "Warning", reason: str = "ReconcileFailed") -> None:
        """Record a failure or a delay in an Event of the object."""
        for informer in self._own:
            snapshot = informer.cache.snapshot(key)
            if snapshot is not None:
                kind = informer.scope.kind
                about = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": snapshot.metadata}
                self._recorder.record(about, type, reason, message)
                return
