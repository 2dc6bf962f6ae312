"""GPU kernels, one family a package; see `kernels/README.md` in the repository."""
