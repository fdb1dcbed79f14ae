"""What ``lockbench new-lock`` copies (``lockbench.bench.new_lock``)."""
