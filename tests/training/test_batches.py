from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

from training.warmstart.batches import (
    collate,
    exact_matches,
    logits_and_looks,
    reply_logits,
    training_batch,
    write,
)
from training.warmstart.demonstrations import DemonstrationWriter
from training.warmstart.mimetic import POINTER_HEADS, PocketShape, pocket_config, random_model
from training.warmstart.recipe import Bucket, Course, Stage, WarmstartRecipe
from training.warmstart.scenes.scene import Odds
from training.warmstart.stories import TaskShape
from training.warmstart.train import _Run, _train_step

SINGLE = TaskShape("niah_single_1", "noise")
SMALL = PocketShape(layers=3, mlp_width=64)


def small_recipe(steps: int = 4) -> WarmstartRecipe:
    stage = Stage(steps, (Bucket(160, 1.0, answer=1.0),), (SINGLE,), near=0.0)
    return WarmstartRecipe(
        name="small", seed=3, shape=SMALL, init="mimetic", stages=(stage,), learning_rate=1e-3,
        batch_tokens=640, warmup_steps=2, decay_steps=2, eval_every=2, eval_samples=2,
        save_every=2,
    )  # fmt: skip


def test_reply_logits_are_the_whole_models(
    writer: DemonstrationWriter, tokenizer: Tokenizer
) -> None:
    model = random_model(pocket_config(SMALL, tokenizer.get_vocab_size(), 1, 2, 0), 0)
    rng = np.random.default_rng(0)
    turns = [writer.memory_turn(SINGLE, 160, Odds(), rng) for _ in range(4)]
    batch = collate([*turns, writer.answer_turn(SINGLE, rng)], 160, 0)
    with torch.no_grad():
        whole = model(batch.ids_BT).logits[batch.rows_N, batch.columns_N]
        torch.testing.assert_close(reply_logits(model, batch), whole, rtol=1e-4, atol=1e-4)


def test_looks_are_how_likely_the_document_and_value_heads_look_at_the_sources(
    writer: DemonstrationWriter, tokenizer: Tokenizer
) -> None:
    shape = PocketShape(layers=5, mlp_width=64)
    model = random_model(pocket_config(shape, tokenizer.get_vocab_size(), 1, 2, 0), 0)
    rng = np.random.default_rng(0)
    turns = [writer.memory_turn(SINGLE, 160, Odds(), rng) for _ in range(2)]
    sources = [[(150, 20, 30), (90, 90, 90)], [(40, 3, 1)]]
    shown = [
        replace(turn, sources=own, points=()) for turn, own in zip(turns, sources, strict=True)
    ]
    batch = collate(shown, 160, 0, training=True)
    _, looks = logits_and_looks(model, batch)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(batch.ids_BT, output_attentions=True).attentions
    expected = [
        torch.stack(
            [
                -torch.log(attentions[layer][row, head, source[0], source[place]])
                for row, own in enumerate(sources)
                for source in own
                for head in heads
            ]
        ).mean()
        for layer, heads, place in ((2, (2, 3), 1), (3, (0, 1), 2))
    ]
    assert looks is not None
    torch.testing.assert_close(looks, torch.stack(expected).sum(), rtol=1e-4, atol=1e-4)
    assert logits_and_looks(model, collate(shown, 160, 0))[1] is None
    shown = [replace(turn, sources=(), absent=turn.sources) for turn in shown]
    absent = collate(shown, 160, 0, training=True, absent=True)
    assert torch.equal(absent.sources_4M, batch.sources_4M)
    assert not collate(shown, 160, 0, training=True).sources_4M.numel()


def test_the_title_head_is_shown_all_tokens_of_a_title(
    writer: DemonstrationWriter, tokenizer: Tokenizer
) -> None:
    model = random_model(pocket_config(SMALL, tokenizer.get_vocab_size(), 1, 2, 0), 0)
    turn = writer.memory_turn(SINGLE, 160, Odds(), np.random.default_rng(0))
    titles = [(60, 20, 24), (90, 20, 24), (120, 118, 122)]
    batch = collate([replace(turn, titles=titles, points=())], 160, 0, training=True)
    _, looks = logits_and_looks(model, batch)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(batch.ids_BT, output_attentions=True).attentions[1]
    expected = [-torch.log(weights[0, 3, at, first:end]).mean() for at, first, end in titles]
    assert looks is not None
    torch.testing.assert_close(looks, torch.stack(expected).mean(), rtol=1e-4, atol=1e-4)


def test_looks_hold_how_likely_the_pointer_heads_look_where_a_reply_stands_already(
    writer: DemonstrationWriter, tokenizer: Tokenizer
) -> None:
    shape = PocketShape(layers=5, mlp_width=64)
    model = random_model(pocket_config(shape, tokenizer.get_vocab_size(), 1, 2, 0), 0)
    rng = np.random.default_rng(0)
    turns = [writer.memory_turn(SINGLE, 160, Odds(), rng) for _ in range(3)]
    turns[1] = replace(turns[1], points=())
    batch = collate(turns, 160, 0, training=True)
    _, looks = logits_and_looks(model, batch)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(batch.ids_BT, output_attentions=True).attentions[-1]
    expected = [
        -torch.log(weights[row, head, before, place])
        for row, turn in enumerate(turns)
        for before, place in turn.points
        for head in POINTER_HEADS
    ]
    assert looks is not None
    assert len(expected) > 10
    torch.testing.assert_close(looks, torch.stack(expected).mean(), rtol=1e-4, atol=1e-4)
    assert logits_and_looks(model, collate(turns, 160, 0))[1] is None


def test_a_stage_with_looks_turns_the_document_heads_alone_at_first(
    writer: DemonstrationWriter, tokenizer: Tokenizer
) -> None:
    """Of what the looks teach, layer 2's queries and keys learn in the heads that look."""
    shape = PocketShape(layers=4, mlp_width=64)
    turn = writer.memory_turn(SINGLE, 160, Odds(), np.random.default_rng(0))
    batch = collate([replace(turn, sources=[(150, 20, 20)], points=())], 160, 0, training=True)

    def queries_after(looks: float) -> Tensor:
        recipe = replace(small_recipe(), shape=shape, precision="float32", clip_norm=1e9)
        recipe = replace(recipe, stages=(replace(recipe.stages[0], looks=looks),))
        model = random_model(pocket_config(shape, tokenizer.get_vocab_size(), 1, 2, 0), 0)
        run = _Run(model, torch.optim.SGD(model.parameters()), Course(recipe))
        run.optimizer.param_groups[0]["scale"] = 1.0
        _train_step(run, batch)
        return model.model.layers[2].self_attn.q_proj.weight.detach()

    changed = (queries_after(0.5) != queries_after(0.0)).unflatten(0, (4, 64)).any(-1).any(-1)
    assert changed.tolist() == [False, False, True, True]


def test_words_that_a_batch_does_not_hold_do_not_move(
    writer: DemonstrationWriter, tokenizer: Tokenizer
) -> None:
    def gradients(logits_of: Callable[[Qwen2ForCausalLM], Tensor]) -> dict[str, Tensor]:
        model = random_model(pocket_config(SMALL, tokenizer.get_vocab_size(), 1, 2, 0), 0)
        nn.functional.cross_entropy(logits_of(model), batch.targets_N).backward()
        return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}

    turn = writer.answer_turn(SINGLE, np.random.default_rng(0))
    batch = collate([turn], 160, 0)
    mine = gradients(lambda model: reply_logits(model, batch))
    whole = gradients(lambda model: model(batch.ids_BT).logits[batch.rows_N, batch.columns_N])
    embeddings = "model.embed_tokens.weight"
    assert mine.keys() == whole.keys()
    for name in mine.keys() - {embeddings}:
        torch.testing.assert_close(mine[name], whole[name], rtol=1e-3, atol=1e-6)
    said, held = set(turn.reply), {*turn.prompt, *turn.reply}
    elsewhere = [token for token in range(tokenizer.get_vocab_size()) if token not in held]
    assert not mine[embeddings][elsewhere].any()
    assert whole[embeddings][elsewhere].all(dim=1).any()
    torch.testing.assert_close(
        mine[embeddings][sorted(said)], whole[embeddings][sorted(said)], rtol=1e-3, atol=1e-6
    )


def test_targets_are_the_reply_tokens_one_ahead(writer: DemonstrationWriter) -> None:
    turn = writer.answer_turn(SINGLE, np.random.default_rng(0))
    batch = collate([turn], 64, 0)
    assert batch.targets_N.tolist() == turn.reply
    assert batch.ids_BT[0, batch.columns_N + 1].tolist() == turn.reply


def test_what_a_prompt_foretells_is_a_target_of_training_alone(writer: DemonstrationWriter) -> None:
    turn = writer.answer_turn(SINGLE, np.random.default_rng(0))
    turn = replace(turn, foretold=[3, 5])
    batch = collate([turn], 64, 0, training=True)
    assert batch.targets_N.tolist() == [turn.prompt[3], turn.prompt[5], *turn.reply]
    assert batch.columns_N[:2].tolist() == [2, 4]
    assert collate([turn], 64, 0).targets_N.tolist() == turn.reply


def test_turns_with_nothing_new_are_drawn_again(writer: DemonstrationWriter) -> None:
    def quiet(again: float) -> int:
        rng = np.random.default_rng(4)
        turns = [write(writer, "memory", SINGLE, 160, Odds(again=again), rng) for _ in range(100)]
        return sum(not turn.added for turn in turns)

    often, seldom = quiet(0.0), quiet(0.8)
    assert 20 < seldom < 50 < often


def test_a_demonstration_longer_than_its_bucket_is_refused(writer: DemonstrationWriter) -> None:
    turn = writer.answer_turn(SINGLE, np.random.default_rng(0))
    with pytest.raises(ValueError, match="bucket of 8"):
        collate([turn], 8, 0)


def test_batches_depend_on_seed_and_step_alone(writer: DemonstrationWriter) -> None:
    recipe = small_recipe()
    (stage,) = recipe.stages
    first, again = (training_batch(writer, recipe, stage, 1, 0) for _ in range(2))
    other = training_batch(writer, recipe, stage, 2, 0)
    assert torch.equal(first.ids_BT, again.ids_BT)
    assert not torch.equal(first.ids_BT, other.ids_BT)


def test_exact_match_wants_every_token(writer: DemonstrationWriter, tokenizer: Tokenizer) -> None:
    model = random_model(pocket_config(SMALL, tokenizer.get_vocab_size(), 1, 2, 0), 0)
    batch = collate([writer.answer_turn(SINGLE, np.random.default_rng(0))], 64, 0)
    assert exact_matches(model, batch) == [False]
