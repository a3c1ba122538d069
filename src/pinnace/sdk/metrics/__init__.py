"""Custom metrics servers: functions whose results are served as custom.metrics.k8s.io and external.metrics.k8s.io."""
