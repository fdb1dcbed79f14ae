"""Plays faults in a row and kills the bench from outside: ``make soak``. Not installed."""
