"""The offline engine: prompts in, text out, prefixes computed once."""

from radix_rs.engine.llm import LLM
from radix_rs.engine.output import EngineStats, RequestOutput, Usage
from radix_rs.model.params import SamplingParams

__all__ = ["LLM", "EngineStats", "RequestOutput", "SamplingParams", "Usage"]
