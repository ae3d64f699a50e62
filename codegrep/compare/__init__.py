"""`python -m codegrep compare`: finished runs in MLflow -> one page that says which reward design is better on what."""
