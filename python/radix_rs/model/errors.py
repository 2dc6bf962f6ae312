"""Why a model cannot be served."""

from radix_rs.errors import InvalidInputError


class ModelLoadError(InvalidInputError):
    """The model is not where it was said to be, or its files cannot be read."""


class UnsupportedModelError(InvalidInputError):
    """The model can be read, but its kind of attention or state has no room in a slot pool."""
