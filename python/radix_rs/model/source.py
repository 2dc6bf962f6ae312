"""Where a model comes from: the package, a directory, a GGUF file or the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from radix_rs.model.errors import ModelLoadError

EMBEDDED = Path(__file__).parent / "embedded"
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What transformers needs to find a model.

    Attributes
    ----------
    name
        Directory or hub name.
    gguf_file
        Name of the GGUF file in that directory, or None.
    has_tokenizer
        Whether a tokenizer is expected there; None if that is not known before asking the hub.
    """

    name: str
    gguf_file: str | None = None
    has_tokenizer: bool | None = None

    @property
    def arguments(self) -> dict[str, str]:
        """Keyword arguments for ``from_pretrained`` beside the name."""
        return {} if self.gguf_file is None else {"gguf_file": self.gguf_file}


def find_source(model: str | Path | None) -> ModelSource:
    """Return where a model is.

    Parameters
    ----------
    model
        None for the model that ships inside the package, a directory, a ``.gguf`` file, or the
        name of a model on the hub.

    Raises
    ------
    ModelLoadError
        If it is a path and nothing of use is there.
    """
    path = EMBEDDED if model is None else Path(model)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelLoadError(f"there is no config.json in {path}")
        has_tokenizer = any((path / name).is_file() for name in _TOKENIZER_FILES)
        return ModelSource(str(path), has_tokenizer=has_tokenizer)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelLoadError(f"there is no file {path}")
        return ModelSource(str(path.parent), gguf_file=path.name, has_tokenizer=True)
    name = str(model)
    if model is None or isinstance(model, Path) or name.startswith((".", "/", "~")):
        raise ModelLoadError(f"there is no model in {path}")
    if name.count("/") > 1 or not name:
        raise ModelLoadError(f"{name!r} is neither a directory nor the name of a model on the hub")
    return ModelSource(name)
