"""Descriptions of Jobs and CronJobs."""

from __future__ import annotations

from datetime import datetime

from pinnace.cli.describe.parts import (
    NONE,
    UNSET,
    Description,
    describe_controller,
    describe_labels,
    heading,
    long_time,
    yes,
)
from pinnace.cli.describe.pods import template
from pinnace.kinds.cells import format_duration, format_selector
from pinnace.model.objects import Object

_SHOWN_INDEXES = 50


def job(page: Description, obj: Object) -> None:
    spec, status = obj["spec"], obj.get("status") or {}
    heading(page, obj)
    page.pair("Selector", format_selector(spec.get("selector")))
    describe_labels(page, obj)
    describe_controller(page, obj)
    page.pairs(
        ("Parallelism", spec.get("parallelism")),
        ("Completions", spec.get("completions", UNSET)),
        ("Completion Mode", spec.get("completionMode")),
        ("Suspend", spec.get("suspend")),
        ("Backoff Limit", spec.get("backoffLimit")),
        ("TTL Seconds After Finished", spec.get("ttlSecondsAfterFinished")),
    )
    began, ended = status.get("startTime"), status.get("completionTime")
    page.pairs(
        ("Start Time", long_time(began) if began else None),
        ("Completed At", long_time(ended) if ended else None),
        ("Duration", _between(began, ended) if began and ended else None),
        ("Active Deadline Seconds", _seconds(spec.get("activeDeadlineSeconds"))),
    )
    ready = f" ({status['ready']} Ready)" if status.get("ready") is not None else ""
    ends = f"{status.get('succeeded', 0)} Succeeded / {status.get('failed', 0)} Failed"
    page.pair("Pods Statuses", f"{status.get('active', 0)} Active{ready} / {ends}")
    if spec.get("completionMode") == "Indexed":
        page.pair("Completed Indexes", _indexes(status.get("completedIndexes", "")))
    template(page, spec.get("template"))


def cron_job(page: Description, obj: Object) -> None:
    spec, status = obj["spec"], obj.get("status") or {}
    wanted = (spec.get("jobTemplate") or {}).get("spec") or {}
    last = status.get("lastScheduleTime")
    heading(page, obj)
    describe_labels(page, obj)
    page.pairs(
        ("Schedule", spec.get("schedule", "")),
        ("Concurrency Policy", spec.get("concurrencyPolicy", "")),
        ("Suspend", yes(spec["suspend"]) if spec.get("suspend") is not None else UNSET),
        ("Time Zone", spec.get("timeZone", UNSET)),
        ("Successful Job History Limit", spec.get("successfulJobsHistoryLimit", UNSET)),
        ("Failed Job History Limit", spec.get("failedJobsHistoryLimit", UNSET)),
        ("Starting Deadline Seconds", _seconds(spec.get("startingDeadlineSeconds")) or UNSET),
        ("Selector", format_selector(wanted["selector"]) if wanted.get("selector") is not None else UNSET),
        ("Parallelism", wanted.get("parallelism", UNSET)),
        ("Completions", wanted.get("completions", UNSET)),
        ("Active Deadline Seconds", _seconds(wanted.get("activeDeadlineSeconds"))),
    )
    template(page, wanted.get("template") or {})
    page.pair("Last Schedule Time", long_time(last) if last else UNSET)
    page.pair("Active Jobs", ", ".join(one["name"] for one in status.get("active") or ()) or NONE)


def _seconds(number: int | None) -> str | None:
    return None if number is None else f"{number}s"


def _between(began: str, ended: str) -> str:
    return format_duration((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds())


def _indexes(text: str) -> str:
    """Return the indexes, shortened to one line without cutting an index in two."""
    end = text.find(",", _SHOWN_INDEXES)
    return (text if end < 0 else f"{text[: end + 1]}...") or NONE
