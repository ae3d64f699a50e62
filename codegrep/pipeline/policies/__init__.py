"""The models of a run: which files, which engine, from and to MLflow."""
