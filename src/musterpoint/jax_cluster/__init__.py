"""What runs in the user's Python of a ``jax`` job: tells JAX which process of the job this is. It imports no room."""
