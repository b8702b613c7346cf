"""The operations of SageMaker's API: one module per noun, and one table that names them all."""
