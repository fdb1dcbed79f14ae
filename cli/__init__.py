"""The command ``lockbench``: its commands, their options, and what each ending is called."""
