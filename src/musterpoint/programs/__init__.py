"""Programs of ours that run as processes of their own, from their texts, and the registry that names them."""
