"""Measures the bench itself: ``make perf``. Not installed."""
