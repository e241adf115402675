"""The bridge to JAX: operators as JAX functions, and JAX arrays as a kind of array."""

# Start reading with `jax_export`, which has the two primitives that JAX traces, and the code
# that they run.

from customop.interop.jax.jax_export import JaxFunction, export
from customop.interop.jax.jax_kind import register_jax_arrays
from customop.interop.jax.xla_targets import register_kernels

__all__ = ["JaxFunction", "export", "register_jax_arrays", "register_kernels"]
