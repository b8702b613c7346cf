"""What runs in the user's Python when a rank starts: a module for each task. They import nothing of musterpoint's."""
