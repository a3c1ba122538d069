"""HTTP extenders: other processes that filter, score, preempt and bind, in kube-scheduler's wire format."""
