"""The catalogue of models: what can be served by name, and with which settings.

The data is `catalogue.toml` beside this file, read top to bottom; adding a model is adding
a table there. Names in the file are slugs; `published_name` is the model column of
results/published/published.csv, where the model has published numbers.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError, model_validator

from core.errors import DataMissing, UsageError
from core.types import Sampling

CATALOGUE_FILE = Path(__file__).with_name("catalogue.toml")
REPOSITORY = Path(__file__).resolve().parent.parent


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SamplingDefaults(_Settings):
    """How the model's published numbers were drawn (PROTOCOL 1.1). See core.types.Sampling."""

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = -1
    repetition_penalty: float = 1.0


class MemAgentBudget(_Settings):
    """Token budgets of the memory agent. `context_cap` None reads every token."""

    chunk_tokens: PositiveInt
    memory_tokens: PositiveInt
    reply_tokens: PositiveInt
    context_cap: PositiveInt | None = None


class GruMemBudget(_Settings):
    """Where GRU-Mem's budgets differ from the memory agent's. None takes those. `answer_layout`:
    see agents/gru_mem.py."""

    chunk_tokens: PositiveInt | None = None
    reply_tokens: PositiveInt | None = None
    answer_layout: Literal["paper", "memagent"] | None = None


class FullContextBudget(_Settings):
    """Token budgets of the full-context baseline: the rendered prompt, and the reply."""

    input_tokens: PositiveInt
    output_tokens: PositiveInt


class CpuSettings(_Settings):
    """How a replica runs where Ray reports no GPU. Models without it need GPUs.

    `threads`: cores of one replica. `kv_cache_gib`: memory of its key-value cache.
    `memory_gib`: all that one replica takes, which bounds their number. `engine_process`:
    whether the model runs in the engine's process or in one of its own (serving/callbacks.py).
    """

    threads: PositiveInt = 1
    kv_cache_gib: PositiveInt = 1
    memory_gib: float = 4.0
    max_replicas: PositiveInt = 8
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    engine_process: Literal["one", "two"] = "one"
    engine: Mapping[str, Any] = {}


class ModelEntry(_Settings):
    """One model that can be served.

    `source` is a hub id, or a path relative to the repository (it then starts with `./`).
    `window_tokens` is the engine's max_model_len: prompt and reply together.
    `hf_overrides` changes the model's own config (YaRN); `plain_attention` leaves out its dual
    chunk attention, which vLLM 0.29.0 does not have; `engine` goes to vLLM as it is.
    `concurrency` is the number of requests kept in flight for a whole pool.
    """

    name: str
    source: str
    revision: str | None = None
    published_name: str | None = None
    note: str = ""
    tensor_parallel: PositiveInt = 1
    window_tokens: PositiveInt
    dtype: str = "bfloat16"
    hf_overrides: Mapping[str, Any] = {}
    plain_attention: bool = False
    engine: Mapping[str, Any] = {}
    concurrency: PositiveInt = 256
    sampling_defaults: SamplingDefaults = SamplingDefaults()
    memagent: MemAgentBudget
    gru_mem: GruMemBudget = GruMemBudget()
    full_context: FullContextBudget
    cpu: CpuSettings | None = None

    @model_validator(mode="after")
    def _budgets_fit_the_window(self) -> ModelEntry:
        if self.plain_attention and self.hf_overrides:
            raise ValueError("plain_attention and hf_overrides exclude each other")
        full = self.full_context
        if full.input_tokens + full.output_tokens > self.window_tokens:
            raise ValueError(
                f"full_context takes {full.input_tokens} + {full.output_tokens} tokens, "
                f"the window has {self.window_tokens}"
            )
        memory = self.memagent.memory_tokens
        for method in ("memagent", "gru_mem"):
            budget = self.budget(method)
            chunk, reply = budget["chunk_tokens"], budget["reply_tokens"]
            if chunk + memory + reply > self.window_tokens:
                raise ValueError(
                    f"{method} takes {chunk} (chunk) + {memory} (memory) + {reply} (reply) "
                    f"tokens, the window has {self.window_tokens}"
                )
        return self

    def budget(self, method: str) -> dict[str, Any]:
        """The settings of a method that this entry has an opinion on, by their names there."""
        match method:
            case "memagent":
                # The window is sized with memory_tokens; for the method a memory is a reply.
                return self.memagent.model_dump(exclude={"memory_tokens"})
            case "gru_mem":
                shared = self.memagent.model_dump(include={"chunk_tokens", "reply_tokens"})
                return shared | self.gru_mem.model_dump(exclude_none=True)
            case "full_context":
                return self.full_context.model_dump()
        return {}

    @property
    def sampling(self) -> Sampling:
        """The published sampling, without a seed."""
        return Sampling(**self.sampling_defaults.model_dump())

    def with_weights(self, folder: Path) -> ModelEntry:
        """The same model with the checkpoint in `folder`."""
        return self.model_copy(update={"source": f"./{os.path.relpath(folder, REPOSITORY)}"})

    @property
    def is_local(self) -> bool:
        """Whether the weights are a folder of this repository."""
        return self.source.startswith("./")

    @cached_property
    def location(self) -> str:
        """An absolute folder, or the hub id.

        Raises:
            DataMissing: the folder holds no model.
        """
        if not self.is_local:
            return self.source
        folder = (REPOSITORY / self.source).resolve()
        missing = [f for f in ("config.json", "tokenizer.json") if not (folder / f).is_file()]
        if missing or not any(folder.glob("*.safetensors")):
            raise DataMissing(
                f"model {self.name}: {folder} holds no "
                f"{', '.join(missing) or '*.safetensors'}. The embedded models come with a "
                "clone of the repository; `python run.py train --help` says how they are made."
            )
        return str(folder)


def load_catalogue(path: Path = CATALOGUE_FILE) -> dict[str, ModelEntry]:
    """All models by name. What an entry leaves out is taken from the entry that its `like`
    names, if any, then from [defaults].

    Raises:
        UsageError: the file is not valid; the text names the entry and the field.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataMissing(f"the catalogue of models {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the catalogue of models {path} is not valid TOML: {error}") from error
    defaults = data.get("defaults", {})
    tables: dict[str, dict[str, Any]] = data.get("models", {})
    entries: dict[str, ModelEntry] = {}
    for name, table in tables.items():
        like = table.pop("like", name)
        if like not in entries and like != name:
            raise UsageError(f"{path}, model {name}: like = {like!r} names no model above it")
        tables[name] = {**tables[like], **table}
        try:
            entries[name] = ModelEntry.model_validate({**defaults, "name": name, **tables[name]})
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}".lstrip(": ")
                for fault in error.errors()
            )
            raise UsageError(f"{path}, model {name}: {faults}") from error
    return entries


def find_model(name: str, catalogue: Mapping[str, ModelEntry] | None = None) -> ModelEntry:
    """The entry called `name`.

    Raises:
        UsageError: there is none; the text lists those with a similar name, else all.
    """
    entries = load_catalogue() if catalogue is None else catalogue
    if name in entries:
        return entries[name]
    close = difflib.get_close_matches(name.lower(), entries, n=5, cutoff=0.5)
    known = f"Did you mean {', '.join(close)}?" if close else f"Known: {', '.join(entries)}."
    raise UsageError(
        f"no model called {name!r} in the catalogue. {known} "
        f"Models are added in {CATALOGUE_FILE.relative_to(REPOSITORY)}."
    )
