"""Pure decisions: (state, now, rng) -> what to do."""
