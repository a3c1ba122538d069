"""The rows of jobs and cron jobs."""

from __future__ import annotations

from pinnace.kinds.batch import columns, validation
from pinnace.kinds.rows import GA, STATUS, Row, old
from pinnace.kinds.selectable import text_at

ROWS = (
    Row(
        group="batch",
        name="CronJob",
        plural="cronjobs",
        columns=columns.CRON_JOB,
        short_names=("cj",),
        categories=("all",),
        versions=(GA, old("v1beta1", deprecated="1.21", removed="1.25", replacement="batch/v1")),
        subresources=(STATUS,),
        strategy=validation.CRON_JOB,
    ),
    Row(
        group="batch",
        name="Job",
        plural="jobs",
        columns=columns.JOB,
        categories=("all",),
        versions=(GA,),
        subresources=(STATUS,),
        selectable={"status.successful": text_at("status.succeeded", "0")},
        strategy=validation.JOB,
    ),
)
