"""How XLA compiles what the tests run."""

import jaxlib

# Programs that run once: what counts is how long they take to compile. A module split for many
# compiler threads takes half as long again on the two that there are.
HASTY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
}
if jaxlib.__version__.startswith("0.10."):  # later ones do not know it
    HASTY["xla_cpu_use_fusion_emitters"] = False
# What decides over memory, back as users have it.
FUSED = {option: True for option in HASTY if option == "xla_cpu_use_fusion_emitters"}
# Everything back as users have it.
AS_USERS = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_parallel_codegen_split_count": 32,
    **FUSED,
}
