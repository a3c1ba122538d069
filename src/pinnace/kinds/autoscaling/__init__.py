"""autoscaling: HorizontalPodAutoscalers and Scale."""
