"""A part is a module: its docstring says what it shows, `checks(options)` gives what to run, `summarize(options, results)`
adds the lines that need more than one check; it may be called more than once."""
import importlib

NAMES = ("hop", "tokens", "waves", "kv_blocks", "speed", "constrained", "prefix_cache", "preemption", "gemma2_27b", "kill")
PARTS = {name: importlib.import_module(f"parts.{name}") for name in NAMES}
