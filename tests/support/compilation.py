"""Compiler options of tests: fast compilation, or XLA's defaults if XLA_FLAGS overrides them."""

import os

import jaxlib

# The suite spends most of its time compiling programs that run once. On two cores, splitting a module for many compiler
# threads makes compilation 1.5 times as long.
_FAST = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
}
if jaxlib.__version__.startswith("0.10."):  # later releases do not have the option
    _FAST["xla_cpu_use_fusion_emitters"] = False
FLAGS = " ".join(f"--{option}={value}".lower() for option, value in _FAST.items())
# Compiler options of a program that runs once. XLA_FLAGS without these flags overrides them too.
FAST_COMPILE = _FAST if FLAGS in os.environ.get("XLA_FLAGS", FLAGS) else {}
# XLA's default for the option that affects memory use.
DEFAULT_FUSION = {option: True for option in _FAST if option == "xla_cpu_use_fusion_emitters"}
# XLA's defaults for all these options.
DEFAULT_COMPILE = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_parallel_codegen_split_count": 32,
    **DEFAULT_FUSION,
}
