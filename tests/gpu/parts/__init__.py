"""A part is a module: its docstring says what it shows, `checks(options)` gives what to run, `summarize(options, results)`
adds the lines that need more than one check; it may be called more than once."""
import importlib

# What is long comes late: a machine may be gone before the end.
NAMES = ("hop", "speed", "tokens", "kv_blocks", "kill", "preemption", "gemma2_27b", "waves", "constrained", "prefix_cache", "cliff",
         "kernels")
PARTS = {name: importlib.import_module(f"parts.{name}") for name in NAMES}
