"""The agent of a recipe, and what else a recipe names from files outside the project."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agents.registry import AGENTS
from baselines.registry import BASELINES
from core.errors import UsageError
from core.methods import find_method, method_settings, settings_type
from core.names import base_of, parse_name
from core.outside import file_of, is_outside, outside_hash
from core.tokens import Tokenizer
from core.types import AnswerForm, Json, Method
from serving.placement import FIXED
from tasks.registry import find_task
from training.rl.episodes.notes import check_notes
from training.rl.recipe import RlRecipe, TaskShare, recipe_json
from training.rl.rewards import outcome_of

OWN_OPTIONS = FIXED | {
    "enable_sleep_mode",
    "gpu_memory_utilization",
    "logprobs_mode",
    "skip_tokenizer_init",
    "tensor_parallel_size",
}
"""Engine arguments that are not a recipe's to give."""

NOTED = ("memagent", "gru_mem")
"""The agents whose memory turns training/rl/episodes/memory_turns.py can read."""

METHODS: Mapping[str, type] = {**AGENTS, **BASELINES}


def agent_settings(recipe: RlRecipe) -> dict[str, Json]:
    """The agent's settings in full: its own defaults, over them the recipe's tokens where it has
    such settings, uppermost those in its name.

    Raises:
        UsageError: no such agent or setting, or one that is not the name's to give.
    """
    method = find_method(recipe.method, METHODS)
    tokens = {"chunk_tokens": recipe.chunk_tokens, "reply_tokens": recipe.reply_tokens}
    named = parse_name(recipe.method).settings
    for key in tokens:
        if key in named:
            raise UsageError(f"method {recipe.method}: give {key} as a field of the recipe")
    has = settings_type(method).__dataclass_fields__
    own = {key: value for key, value in tokens.items() if key in has}
    settings = method_settings(method, recipe.method, own)
    if recipe.gated and not settings["exit_gate"]:
        raise UsageError(f"method {recipe.method}: GRU-Mem is trained with its exit gate on")
    return settings


def answer_form(recipe: RlRecipe) -> AnswerForm:
    """How the agent's last prompt asks to mark the answer."""
    form: AnswerForm = "boxed" if recipe.gated else agent_settings(recipe)["answer_form"]  # type: ignore[assignment]
    return form


def make_agent(recipe: RlRecipe, tokenizer: Tokenizer) -> Method:
    """The agent in training, for one tokenizer."""
    method = find_method(recipe.method, METHODS)
    made: Method = method(tokenizer, settings_type(method)(**agent_settings(recipe)))
    return made


def check_names(recipe: RlRecipe) -> None:
    """Finds all that the recipe names, before anything long begins.

    Raises:
        UsageError: something is not there, or not what it should be.
    """
    agent_settings(recipe)
    outcome_of(recipe.reward)
    if fixed := sorted(OWN_OPTIONS & recipe.engine_options.keys()):
        raise UsageError(
            f"engine_options.{fixed[0]}: the trainer sets it itself; tensor_parallel, "
            "engine_memory and engine_sleeps are fields of the recipe"
        )
    for share in (*recipe.tasks, *recipe.validation.tasks):
        find_task(share.name)
    if recipe.episodes is not None:
        if base_of(recipe.method) not in NOTED:
            raise UsageError(
                f"episodes: what {recipe.method} notes is not known; expected {' or '.join(NOTED)}"
            )
        for share in recipe.tasks:
            check_notes(share.name)


def run_record(recipe: RlRecipe) -> str:
    """What a run keeps as its recipe.json: the recipe in full, and the hashes of the user's own
    files, if it names some."""
    hashes = {base_of(name): outside_hash(name) for name in _names(recipe) if is_outside(name)}
    if not hashes:
        return recipe_json(recipe)
    return json.dumps({**json.loads(recipe_json(recipe)), "outside_files": hashes}, indent=1) + "\n"


def with_whole_paths(recipe: RlRecipe) -> RlRecipe:
    """The recipe for processes that may start in another folder."""

    def whole(share: TaskShare) -> TaskShare:
        return share.model_copy(update={"name": _whole(share.name)})

    validation = {"tasks": tuple(map(whole, recipe.validation.tasks))}
    changes = {
        "method": _whole(recipe.method),
        "reward": recipe.reward and _whole(recipe.reward),
        "tasks": tuple(map(whole, recipe.tasks)),
        "validation": recipe.validation.model_copy(update=validation),
    }
    return recipe.model_copy(update=changes)


def _names(recipe: RlRecipe) -> list[str]:
    """All names of the recipe that may be of things from outside."""
    shares = (*recipe.tasks, *recipe.validation.tasks)
    return [recipe.method, *filter(None, [recipe.reward]), *(share.name for share in shares)]


def _whole(name: str) -> str:
    file = name.partition(":")[0]
    return str(file_of(name)) + name.removeprefix(file) if is_outside(base_of(name)) else name
