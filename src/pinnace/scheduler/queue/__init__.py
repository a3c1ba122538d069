"""The pods that wait: active, in back-off, unschedulable until an event helps, or gated."""
