"""The platforms whose control plane ``muster local`` plays: a module for each, and the table of them."""
