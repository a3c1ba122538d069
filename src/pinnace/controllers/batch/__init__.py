"""Jobs, CronJobs, and the removal of finished Jobs."""
