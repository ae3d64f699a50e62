"""Labels: target files mined from agent trajectories (CATM, CodeGrep 3.4; weighting of LRAT, arXiv 2604.04949).

The data's way: a trajectory (any of `adapters`) -> its reads with post-reasoning (`columnar`) -> one candidate a file
(`candidates`) -> relevance (`codegrep.judges.files`) -> weights over the whole set (`weights`) -> target sets
(`targets`). All of it works without Ray, on records and Arrow columns; codegrep/labels/stage.py runs it as a stage.
"""
