"""How XLA compiles what the tests run: in haste, or at its default level if XLA_FLAGS says so."""

import os

import jaxlib

# Most of the suite's time is XLA compiling programs that run once. A module split for many compiler threads takes half
# as long again on two cores.
_FAST = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
}
if jaxlib.__version__.startswith("0.10."):  # later releases do not have the option
    _FAST["xla_cpu_use_fusion_emitters"] = False
FLAGS = " ".join(f"--{option}={value}".lower() for option, value in _FAST.items())
# Compiler options of a program that runs once. XLA_FLAGS without these flags overrides them too.
HASTY = _FAST if FLAGS in os.environ.get("XLA_FLAGS", FLAGS) else {}
# XLA's defaults for what decides over memory.
FUSED = {option: True for option in _FAST if option == "xla_cpu_use_fusion_emitters"}
# XLA's defaults for all of them.
AS_USERS = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_parallel_codegen_split_count": 32,
    **FUSED,
}
