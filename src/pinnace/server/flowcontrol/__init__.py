"""API priority and fairness: which request is served when."""
