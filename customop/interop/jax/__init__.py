"""The bridge to JAX: operators as functions of JAX, and JAX's arrays as a kind.

May import all of customop below the bridges, and JAX. Start with `jax_export`, which has
the two primitives that JAX traces and what they run.
"""

from customop.interop.jax.jax_export import JaxFunction, export
from customop.interop.jax.jax_kind import register_jax_arrays

__all__ = ["JaxFunction", "export", "register_jax_arrays"]
