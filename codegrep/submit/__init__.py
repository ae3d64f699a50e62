"""How a run reaches a cluster that it is not started on: `python -m codegrep submit …`."""
