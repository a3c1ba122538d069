"""The HorizontalPodAutoscaler: its replica arithmetic as pure functions, and the controller that applies it."""
