"""The default plug-ins of kube-scheduler 1.36, one file each, with its names, weights, formulas and messages."""
