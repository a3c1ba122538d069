"""What is special about jobs and cron jobs."""

from pinnace.model.resources import Strategy

JOB = Strategy()
CRON_JOB = Strategy()
