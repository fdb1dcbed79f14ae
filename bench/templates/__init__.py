"""What ``lockbench new-lock`` copies (``bench.new_lock``)."""
