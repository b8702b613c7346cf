"""TensorFlow: the same program on every host, or roles with parameter servers, told by TF_CONFIG."""
