"""batch: Jobs and CronJobs."""
