"""MLflow: the names of every metric in one place, one run written by explicit URI and id, figures and tables."""
