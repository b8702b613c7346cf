"""TensorFlow: the same program on every host, or roles with parameter servers, as TF_CONFIG names them."""
