"""Which machines' histories can be merged, and what can then be seen: simulated, with the truth
known (docs/clocks.md)."""
