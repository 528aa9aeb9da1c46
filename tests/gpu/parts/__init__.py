"""A part is a module. Its docstring says what it shows. `checks(options)` returns the checks to run.
`summarize(options, results)` adds the lines that need several checks; it may be called more than once."""
import importlib

# Long parts come last: a machine may be taken away before the end.
NAMES = ("hop", "speed", "tokens", "kv_blocks", "kill", "stop", "preemption", "gemma2_27b", "waves", "constrained",
         "prefix_cache", "recurrent_tiers", "cliff", "experts", "fp8_kv", "packed", "families", "start", "kernels")
PARTS = {name: importlib.import_module(f"parts.{name}") for name in NAMES}
