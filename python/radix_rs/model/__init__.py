"""Hugging Face models on a pool of slots: load one, run one ragged step, sample."""

from radix_rs.model.detokenize import Detokenizer
from radix_rs.model.errors import ModelLoadError, UnsupportedModelError
from radix_rs.model.loader import LoadedModel, load_model
from radix_rs.model.params import SamplingParams
from radix_rs.model.runner import ModelRunner
from radix_rs.model.sample import Draw, Sampled, sample

__all__ = [
    "Detokenizer",
    "Draw",
    "LoadedModel",
    "ModelLoadError",
    "ModelRunner",
    "Sampled",
    "SamplingParams",
    "UnsupportedModelError",
    "load_model",
    "sample",
]
