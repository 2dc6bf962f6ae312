"""Peers of the tree and what it takes to compare with them."""
