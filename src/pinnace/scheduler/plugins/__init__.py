"""The default plug-ins of kube-scheduler 1.36, with its names, weights, formulas and messages."""
