"""Training the policy: warm start (weighted SFT) and GRPO, both as Ray Train jobs."""
