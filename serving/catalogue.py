"""The catalogue of models: what can be served by name, and with which settings.

The data is `catalogue.toml` beside this file, read top to bottom; adding a model is adding
a table there, or in a file of one's own whose tables are laid over these. Names in the file are
slugs; `published_name` is the model column of results/published/published.csv, where the model
has published numbers. A name may go on with sampling: `pocket-base@temperature=0,top_p=1`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from core.errors import DataMissing, UsageError
from core.names import Name, explained, not_known, parse_name
from core.types import Sampling, Scalar
from serving.downloads import read_pins

CATALOGUE_FILE = Path(__file__).with_name("catalogue.toml")
REPOSITORY = Path(__file__).resolve().parent.parent


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SamplingSettings(_Settings):
    """What may be said of core.types.Sampling in a catalogue, a suite or a model's name. The
    defaults are how the published numbers were drawn (PROTOCOL 1.1)."""

    temperature: float = Field(default=0.7, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    top_k: int = Field(default=-1, ge=-1)
    repetition_penalty: float = Field(default=1.0, gt=0)


class CpuSettings(_Settings):
    """How a replica runs where Ray reports no GPU. Models without it need GPUs.

    `threads`: cores of one replica. `kv_cache_gib`: memory of its key-value cache.
    `memory_gib`: all that one replica takes, which bounds their number. `dtype` auto: what this
    CPU is fast at (`serving.app.cpu_dtype`). `engine_process`: whether the model runs in the
    engine's process or in one of its own (serving/callbacks.py).
    """

    threads: PositiveInt = 1
    kv_cache_gib: PositiveInt = 1
    memory_gib: float = 4.0
    max_replicas: PositiveInt = 8
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    engine_process: Literal["one", "two"] = "one"
    engine: Mapping[str, Any] = {}


class ModelEntry(_Settings):
    """One model that can be served.

    `source` is a hub id, or a path relative to the repository (it then starts with `./`).
    `window_tokens` is the engine's max_model_len: prompt and reply together.
    `hf_overrides` changes the model's own config (YaRN); `plain_attention` leaves out its dual
    chunk attention, which vLLM 0.29.0 does not have; `engine` goes to vLLM as it is.
    `concurrency` is the number of requests kept in flight for a whole pool. `methods` holds a
    method's settings for this model under the method's name; the method checks them.
    """

    name: str
    source: str
    revision: str | None = None
    published_name: str | None = None
    note: str = ""
    demonstration: bool = False
    tensor_parallel: PositiveInt = 1
    window_tokens: PositiveInt
    dtype: str = "bfloat16"
    hf_overrides: Mapping[str, Any] = {}
    plain_attention: bool = False
    engine: Mapping[str, Any] = {}
    concurrency: PositiveInt = 256
    sampling_defaults: SamplingSettings = SamplingSettings()
    methods: Mapping[str, Mapping[str, Scalar]] = {}
    cpu: CpuSettings | None = None

    @model_validator(mode="after")
    def _one_way_of_attention(self) -> ModelEntry:
        if self.plain_attention and self.hf_overrides:
            raise ValueError("plain_attention and hf_overrides exclude each other")
        return self

    @property
    def sampling(self) -> Sampling:
        """The published sampling, without a seed."""
        return Sampling(**self.sampling_defaults.model_dump())

    def with_weights(self, folder: Path) -> ModelEntry:
        """The same settings with the checkpoint in `folder`, which is another model."""
        other = dict.fromkeys(("revision", "published_name"))
        return self.model_copy(
            update={**other, "note": "", "demonstration": False, "source": _source_of(folder)}
        )

    @property
    def is_local(self) -> bool:
        """Whether the weights are a folder of this repository."""
        return self.source.startswith("./")

    @property
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


OF_THE_WEIGHTS = ("revision", "published_name", "demonstration")
"""Fields that go with a `source`: a table that names another has none of them from elsewhere."""


def load_catalogue(own: Path | None = None) -> dict[str, ModelEntry]:
    """All models by name. What an entry leaves out is taken from the entry that its `like`
    names, if any, then from [defaults]; tables within it are merged. A file of the user's `own`
    may add entries and defaults of its own, and change entries by repeating their names.

    Raises:
        DataMissing: the file is not there.
        UsageError: it is not valid; the text names the entry and the field.
    """
    entries: dict[str, ModelEntry] = {}
    pins = read_pins()
    defaults: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for path in (CATALOGUE_FILE, own) if own else (CATALOGUE_FILE,):
        data = _read(path)
        if unknown := sorted(data.keys() - {"defaults", "models"}):
            raise UsageError(f"{path}: table {not_known(unknown[0], ('defaults', 'models'))}")
        defaults = _merged(defaults, data.get("defaults", {}))
        for name, table in data.get("models", {}).items():
            tables[name] = _complete(name, table, tables, path)
            try:
                entry = ModelEntry.model_validate({**_merged(defaults, tables[name]), "name": name})
            except ValidationError as error:
                raise UsageError(f"{path}, model {name}: {explained(error)}") from error
            if entry.revision is None and entry.source in pins:
                entry = entry.model_copy(update={"revision": pins[entry.source]})
            entries[name] = entry
    return entries


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataMissing(f"the catalogue of models {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the catalogue of models {path} is not valid TOML: {error}") from error


def _complete(
    name: str, table: dict[str, Any], above: Mapping[str, dict[str, Any]], path: Path
) -> dict[str, Any]:
    """A model's table with what it has from the one that it is like, or that it changes."""
    like = table.pop("like", name)
    if like not in above and like != name:
        raise UsageError(f"{path}, model {name}: like = {like!r} names no model above it")
    base = dict(above.get(like, {}))
    if source := table.get("source"):
        base = {key: value for key, value in base.items() if key not in OF_THE_WEIGHTS}
        if path != CATALOGUE_FILE and str(source).startswith((".", "/")):
            table["source"] = _source_of(path.parent / source)
    return _merged(base, table)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables as one: `above` has the word, tables in both are merged likewise."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
        result[key] = _merged(below[key], value) if both else value
    return result


def _source_of(folder: Path) -> str:
    return f"./{os.path.relpath(folder, REPOSITORY)}"


def model_name(text: str) -> Name:
    """A model's name and the sampling that it goes on with. An endpoint's own name may hold an
    @ (`vendor/model@20240620`): only what has a `=` after the last one is settings.

    Raises:
        UsageError: what follows the @ is not settings, or one is given twice.
    """
    base, _, rest = text.rpartition("@")
    return Name(base, parse_name(f"model@{rest}").settings) if base and "=" in rest else Name(text)


def find_model(name: str, catalogue: Mapping[str, ModelEntry] | None = None) -> ModelEntry:
    """The entry called `name`.

    Raises:
        UsageError: there is none; the text lists those there are.
    """
    entries = load_catalogue() if catalogue is None else catalogue
    if name in entries:
        return entries[name]
    raise UsageError(
        f"model {not_known(name, entries)}. Models are added in "
        f"{CATALOGUE_FILE.relative_to(REPOSITORY)}, or in a file of your own (--catalogue)."
    )
