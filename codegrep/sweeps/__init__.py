"""Many runs: the queue of a sweep, and searches with Ray Tune."""
