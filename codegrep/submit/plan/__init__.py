"""What a run needs before it is started: `python -m codegrep plan …`. Pure; imports neither ray nor torch."""
