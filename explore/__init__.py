"""Tries every place at which one fault can strike the calls of a lock: ``lockbench explore``."""
