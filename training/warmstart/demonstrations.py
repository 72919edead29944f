r"""Demonstrations for the warm start: (prompt ids, reply ids) of five kinds of turns.

Written at token level, because the trainer needs hundreds a second; a test holds them to
the tasks' and the agents' own texts, token for token. Formats of the replies:

- update or keep turn: the old memory word for word, then each needle that the section holds
  whole, in order: `Found: wooden-table is: 1234567. wooden-table is: 7654321.`; or still
  `No previous memory`. An entry is the tail of the needle's sentence, so that all of it is
  copying. A needle that a chunk's edge cuts inside its key or value counts as not there.
- answer turn: `Therefore, the answer is wooden-table is: 1234567.` (the memory's entries),
  or `Therefore, the answer is unknown.`
- full context: the same; of several keys, in the question's order.
- GRU-Mem's memory turn: its gates around the same memory. `yes` where the section adds an
  entry; `end` once all that the question names is known, so never for a question that does
  not say how much there is. Its answer turn: the entries in `\boxed{...}`. Where it thinks, entries
  stand between `<think>` and `</think>` first, or `Nothing new.`: those that are added, or all of
  the new memory, so that each is looked for before the gate says whether any was found.

Tasks: RULER's niah with the haystack of noise, of needles or of prose, and variable tracking (`vt`,
entries are bare names), as PROTOCOL 2.2 has them, written here. Others are laid out from scenes:
tasks/fiction (`scenes.fiction`), RULER's cwe and fwe (`scenes.words`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from tokenizers import Tokenizer

from agents.gru_mem import AnswerLayout
from tasks.questions.documents import heading
from training.warmstart.guide import Guide, Source
from training.warmstart.mimetic import Landmarks
from training.warmstart.points import Point, points_of, read_in_row, read_whole
from training.warmstart.prompts import FOUND, UNKNOWN
from training.warmstart.scenes.fiction import ENTRY_ENDS, FictionScenes
from training.warmstart.scenes.scene import Odds, Room, Scenes, Twice
from training.warmstart.scenes.words import WordScenes
from training.warmstart.stories import Ids, Story, StoryTeller, TaskShape, joined

T = TypeVar("T")
Kind = Literal["memory", "answer", "full_context", "gru_memory", "gru_answer"]

SPACE = "\u0120"
"""How a byte-level vocabulary writes a space."""
CHUNK_SHORTER = 8
"""A section is shorter than there is room for by fewer tokens than this."""
LINE_TOKENS = 40
"""So many tokens more than a section are written, from which it is cut."""
GATE_TOKENS = 4
"""Added by GRU-Mem's marks: check, update (two), next."""
THOUGHT_TOKENS = 3
"""Of a thought besides its entries."""

# How often what happens.
NOTHING_NEW = 0.4
"""Memory turns that add no entry though the memory lacks some."""
STRAY_ENTRY = 0.05
"""Memories that hold an entry of a key not asked for."""
WHOLE_FIRST_LINE = 0.1
"""Sections that begin with a line, as the first chunk of a context."""
NO_LAST_NEWLINE = 0.1
"""Sections whose last line, if whole, lacks its newline, as the last chunk of a context."""
FULL_MEMORY = 0.6
"""Answer turns whose memory is sure to hold everything."""
NO_NEEDLE = 0.05
"""Full contexts with nothing to be found."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One turn: what the model reads, and what it should reply (closed by `<|im_end|>`).

    `added`: entries that a memory turn adds; a keep turn has none. `foretold`: places of the prompt
    whose tokens follow from what stands before them. `sources`: of the values that a section tells;
    `absent`: of those that it does not. `titles`: places, and the first token and the end of the
    document's title, or the entry's name, that they stand behind. `points`: of the reply's tokens,
    see `training.warmstart.points`.
    """

    kind: Kind
    task: str
    prompt: Ids
    reply: Ids
    added: int = 0
    foretold: Sequence[int] = ()
    sources: Sequence[Source] = ()
    absent: Sequence[Source] = ()
    titles: Sequence[tuple[int, int, int]] = ()
    points: Sequence[Point] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """How turns are laid out. `chunk_tokens`: the most of a section. Of GRU-Mem's: the entries that
    its thought says before its memory does, and whether its answer turn is laid out as the paper's
    or as MemAgent's.

    `memory_room`, `gated_room` and `answer_room`: of a held-out turn, tokens around its section,
    reply included."""

    chunk_tokens: int = 512
    thoughts: Twice = "none"
    answer_layout: AnswerLayout = "memagent"
    memory_room: int = 96
    gated_room: int = 128
    answer_room: int = 112

    def thought_of(self, after: Sequence[T], new: Sequence[T]) -> Sequence[T]:
        """Of the new memory's entries, and of those that it adds, what GRU-Mem's thought says."""
        if self.thoughts == "none":
            return ()
        return after if self.thoughts == "all" else new


class DemonstrationWriter:
    """Writes demonstrations from an explicit RNG."""

    def __init__(self, tokenizer: Tokenizer, form: Form | None = None) -> None:
        self.form = form or Form()
        self.tokenizer = tokenizer
        self.stories = StoryTeller(tokenizer)
        self.fixed = self.stories.fixed
        ids = self.stories.ids
        self.found, self.unknown, self.box_closes = ids(FOUND), ids(UNKNOWN), ids("}")
        self.user = ids("<|im_start|>user\n")
        self.assistant = ids("<|im_end|>\n<|im_start|>assistant\n")
        self.end = ids("<|im_end|>")

    @cached_property
    def guide(self) -> Guide:
        """Where the heads of its turns should look."""
        return Guide(
            self.fixed,
            self.found,
            self.landmarks.titles,
            comma=self.stories.comma[0],
            newline=self.stories.ids("\n")[0],
            assistant=len(self.assistant),
            thoughts=self.form.thoughts != "none",
        )

    @cached_property
    def _fiction(self) -> Scenes:
        return FictionScenes(self.tokenizer)

    @cached_property
    def _words(self) -> Scenes:
        return WordScenes(self.tokenizer)

    def _scenes(self, shape: TaskShape) -> Scenes | None:
        """Those of the task; None for the tasks that are written as tokens."""
        if shape.haystack == "documents":
            return self._fiction
        return self._words if shape.haystack == "words" else None

    @cached_property
    def landmarks(self) -> Landmarks:
        """What the mimetic start knows by id."""
        stories = self.stories
        asked = (self.fixed.mentioned[0], stories.comma[0])
        titles = stories.ids(heading(1))[-1], self.found[0], stories.ids(ENTRY_ENDS)[0]
        lead = stories.needle_opens[-1]
        return Landmarks(self.user[0], asked, lead, titles, tuple(_twins(self.tokenizer)))

    def memory_turn(
        self,
        shape: TaskShape,
        budget: int,
        odds: Odds,
        rng: np.random.Generator,
        *,
        gates: bool = False,
    ) -> Demonstration:
        """An update or keep turn of at most `budget` tokens, reply included. `gates`: in
        GRU-Mem's form."""
        scenes = self._scenes(shape)
        if scenes is not None:
            return self._scene_memory_turn(scenes, shape, budget, odds, rng, gates=gates)
        story = self.stories.tell(shape, rng)
        known, new = _known_and_new(story, odds, rng)
        old = self._with_stray(story, [story.facts[i].entry for i in known], rng)
        memory = self.memory_text(old)
        head, tail = self._around_section(story.question, memory, gates)
        entry_tokens = sum(len(story.facts[i].entry) for i in new)
        spare = budget - len(head) - len(tail) - len(memory) - entry_tokens - 1
        if gates:
            spare -= GATE_TOKENS
            if self.form.thoughts != "none":
                held = len(memory) if self.form.thoughts == "all" else 0
                spare -= THOUGHT_TOKENS + entry_tokens + held
        tokens = min(self.form.chunk_tokens, spare - int(rng.integers(0, CHUNK_SHORTER)))
        section, places = self.section(story, new, tokens, odds.near, rng)
        inside = [*places]
        if rng.random() < NO_LAST_NEWLINE:
            section = self.stories.without_newline(section)
        added = [story.facts[i].entry for i in inside]
        entries = old + added
        reply = self.memory_text(entries)
        if gates:
            complete = story.countable and len(known) + len(inside) == len(story.facts)
            reply = self._gated(entries, added, complete)
        kind: Kind = "gru_memory" if gates else "memory"
        prompt = head + section + tail
        read = [read_whole(story.facts[i].entry, len(head) + at) for i, at in places.items()]
        kept = read_in_row(old, self.guide.memory_at(prompt, old)) if old else []
        after = [*kept, *read]
        points = self.guide.points(
            prompt, reply, after, self.form.thought_of(after, read), gates=gates
        )
        return Demonstration(kind, shape.name, prompt, reply + self.end, len(inside), points=points)

    def answer_turn(
        self, shape: TaskShape, rng: np.random.Generator, *, boxed: bool = False
    ) -> Demonstration:
        """The last turn: the memory's entries become the answer. `boxed`: in GRU-Mem's form,
        laid out as MemAgent's."""
        scenes = self._scenes(shape)
        if scenes is not None:
            scene = scenes.answer(shape, rng)
            entries = [note.entry for note in scene.entries]
            prompt = self._answer_prompt(scene.question, entries, boxed)
            foretold = self.guide.foretold(scene.entries, prompt)
            said = self._said(scene.answer, boxed)
            points = self.guide.repeated(prompt, scene.answer)
            return self._answered(shape, prompt, said, boxed, foretold, points)
        story = self.stories.tell(shape, rng)
        total = len(story.facts)
        count = total if rng.random() < FULL_MEMORY else int(rng.integers(0, total + 1))
        entries = self._with_stray(story, [fact.entry for fact in story.facts[:count]], rng)
        prompt = self._answer_prompt(story.question, entries, boxed)
        reply = self.answer_text(entries)
        if boxed:
            reply = self.fixed.boxed + (joined(entries) or self.unknown) + self.box_closes
        points = self.guide.repeated(prompt, joined(entries))
        return self._answered(shape, prompt, reply, boxed, points=points)

    def full_context(
        self, shape: TaskShape, budget: int, near: float, rng: np.random.Generator
    ) -> Demonstration:
        """The direct answer from a whole context of at most `budget` tokens in all."""
        fixed = self.fixed
        head, form = self.user + fixed.context_opens, fixed.context_format + self.assistant
        scenes = self._scenes(shape)
        if scenes is not None:
            around = len(head) + len(fixed.context_closes) + len(form)
            around += len(fixed.answer_is) + len(self.stories.stop) + 1
            scene = scenes.whole(shape, budget - around, near, rng)
            prompt = head + scene.context + fixed.context_closes + scene.question + form
            reply = self._said(scene.answer, boxed=False) + self.end
            return Demonstration("full_context", shape.name, prompt, reply)
        story = self.stories.tell(shape, rng)
        present = [] if rng.random() < NO_NEEDLE else list(range(len(story.facts)))
        order = [i for i in story.question_order if i in present]
        reply = self.answer_text([story.facts[i].entry for i in order]) + self.end
        tail = fixed.context_closes + story.question + form
        tokens = budget - len(reply) - len(head) - len(tail)
        text, places = self.section(story, present, tokens, near, rng, whole=True)
        prompt = head + self.stories.without_newline(text) + tail
        read = [read_whole(story.facts[i].entry, len(head) + places[i]) for i in order]
        at, nothing = len(prompt) + len(fixed.answer_is), self.guide.nothing(prompt)
        points = [*points_of(read, at, nothing)]
        return Demonstration("full_context", shape.name, prompt, reply, points=points)

    def section(
        self,
        story: Story,
        new: Sequence[int],
        tokens: int,
        near: float,
        rng: np.random.Generator,
        whole: bool = False,
    ) -> tuple[Ids, dict[int, int]]:
        """`tokens` consecutive ids of a context that holds the facts `new`, and those of them that
        stand there whole, in order, with the places where their entries begin. `whole`: begins and
        ends with whole lines, as a context, of at most `tokens` ids."""
        lines = self._lines(story, new, tokens, near, rng, whole)
        ids: Ids = []
        spans: list[tuple[int, int, int]] = []
        for line, index in lines:
            if index is not None:
                fact = story.facts[index]
                spans.append((len(ids) + fact.start, len(ids) + fact.end, index))
            ids += line
        ids[0] = self.stories.unspaced.get(ids[0], ids[0])
        if whole:
            return ids, {index: first for first, _, index in spans}
        start = 0
        if rng.random() >= WHOLE_FIRST_LINE:
            start = int(rng.integers(0, min(LINE_TOKENS, len(ids) - tokens) + 1))
        end = start + tokens
        inside = [span for span in spans if span[0] >= start and span[1] <= end]
        return ids[start:end], {index: first - start for first, _, index in inside}

    def _lines(
        self,
        story: Story,
        new: Sequence[int],
        tokens: int,
        near: float,
        rng: np.random.Generator,
        whole: bool,
    ) -> list[tuple[Ids, int | None]]:
        """Lines of haystack with those of the facts `new` among them: each with the number of
        its fact. They come to `tokens` at most where they stay `whole`, else to a line more."""
        lines: list[tuple[Ids, int | None]] = []
        size = sum(len(story.facts[i].line) for i in new)
        while True:  # one at least, however much the facts take
            line = self.stories.hay(story, near, rng)
            if whole and size + len(line) > tokens:
                break
            lines.append((line, None))
            size += len(line)
            if size >= tokens + (0 if whole else LINE_TOKENS):
                break
        places = np.sort(rng.choice(max(len(lines), len(new)), len(new), replace=False))
        for place, index in sorted(zip(places, new, strict=True), reverse=True):
            lines.insert(int(place), (story.facts[index].line, index))
        return lines

    def memory_text(self, entries: Sequence[Ids]) -> Ids:
        """A memory of these entries."""
        return self.found + joined(entries) if entries else self.fixed.no_memory

    def answer_text(self, entries: Sequence[Ids]) -> Ids:
        """An answer of these entries."""
        return self.fixed.answer_is + (joined(entries) or self.unknown)

    def _scene_memory_turn(
        self,
        scenes: Scenes,
        shape: TaskShape,
        budget: int,
        odds: Odds,
        rng: np.random.Generator,
        *,
        gates: bool,
    ) -> Demonstration:
        """A memory turn laid out from a scene."""
        around = sum(map(len, self._around_section([], [], gates))) + len(self.end)
        around += 2 * len(self.found)
        twice = self.form.thoughts if gates else "none"
        around += (GATE_TOKENS if gates else 0) + (0 if twice == "none" else THOUGHT_TOKENS)
        room = Room(budget - around, self.form.chunk_tokens, twice)
        scene = scenes.memory(shape, room, odds, rng)
        old, after, new = (
            [note.entry for note in notes] for notes in (scene.old, scene.notes, scene.new)
        )
        head, tail = self._around_section(scene.question, self.memory_text(old), gates)
        reply = self.memory_text(after)
        if gates:
            reply = self._gated(after, new, scene.complete)
        kind: Kind = "gru_memory" if gates else "memory"
        prompt = head + list(scene.section) + tail
        guide, section = self.guide, len(head)
        thought = self.form.thought_of(scene.notes, scene.new)
        read = [guide.read(notes, scene, prompt, section) for notes in (scene.notes, thought)]
        points = guide.points(prompt, reply, *read, gates=gates)
        sources = guide.sources(scene, prompt, section, reply)
        absent = guide.absent(scene, prompt, reply)
        foretold = guide.foretold(scene.old, head) if scene.asked else ()
        reply = reply + self.end
        titles = guide.titles(prompt, reply, sources) if shape.haystack == "documents" else ()
        return Demonstration(
            kind, shape.name, prompt, reply, len(new), foretold, sources, absent, titles, points
        )

    def _answer_prompt(self, question: Ids, entries: Sequence[Ids], boxed: bool) -> Ids:
        fixed, memory = self.fixed, self.memory_text(entries)
        if boxed and self.form.answer_layout == "paper":
            head = fixed.paper_opens + question + fixed.gated_to_memory
            return self.user + head + memory + fixed.paper_closes + self.assistant
        head = (fixed.boxed_opens if boxed else fixed.answer_opens) + question + fixed.to_memory
        return self.user + head + memory + fixed.answer_closes + self.assistant

    def _answered(
        self,
        shape: TaskShape,
        prompt: Ids,
        reply: Ids,
        boxed: bool,
        foretold: Sequence[int] = (),
        points: Sequence[Point] = (),
    ) -> Demonstration:
        kind: Kind = "gru_answer" if boxed else "answer"
        reply = reply + self.end
        return Demonstration(kind, shape.name, prompt, reply, foretold=foretold, points=points)

    def _said(self, answer: Ids, boxed: bool) -> Ids:
        """A scene's answer, in the form that is asked for."""
        if boxed:
            return self.fixed.boxed + (answer or self.unknown) + self.box_closes
        return self.fixed.answer_is + (answer + self.stories.stop if answer else self.unknown)

    def _around_section(self, question: Ids, memory: Ids, gates: bool) -> tuple[Ids, Ids]:
        """A memory turn's prompt before and after its section."""
        fixed = self.fixed
        if gates:
            head = fixed.gated_opens + question + fixed.gated_to_memory
            return self.user + head + memory + fixed.gated_to_section, (
                fixed.gated_closes + self.assistant
            )
        head = fixed.memory_opens + question + fixed.to_memory
        return self.user + head + memory + fixed.to_section, fixed.memory_closes + self.assistant

    def _gated(self, entries: Sequence[Ids], added: Sequence[Ids], done: bool) -> Ids:
        """GRU-Mem's reply, of these entries in the memory, `added` among them."""
        fixed = self.fixed
        thought: Ids = []
        if self.form.thoughts != "none":
            thought = fixed.think_nothing
            if said := self.form.thought_of(entries, added):
                thought = fixed.think_opens + self.found + joined(said) + fixed.think_closes
        check = fixed.check_yes if added else fixed.check_no
        following = fixed.next_end if done else fixed.next_continue
        update = fixed.update_opens + self.memory_text(entries) + fixed.update_closes
        return thought + check + update + following

    def _with_stray(self, story: Story, entries: list[Ids], rng: np.random.Generator) -> list[Ids]:
        """The entries, at times with one of another key among them. Of variables there is none."""
        if rng.random() < STRAY_ENTRY and story.shape.base != "vt":
            stray = self.stories.any_needle(rng).entry
            entries.insert(int(rng.integers(len(entries) + 1)), stray)
        return entries


def _twins(tokenizer: Tokenizer) -> Iterator[tuple[int, int]]:
    """Words with a space before them, and the same without; not numbers, nor capitals alone."""
    ids = tokenizer.get_vocab()
    for piece in sorted(ids):
        word = piece[1:]
        if piece[0] == SPACE and word in ids and not word.isupper() and word.isalpha():
            yield ids[piece], ids[word]


def _known_and_new(
    story: Story, odds: Odds, rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Which facts the memory holds already, and which the section adds: neighbours in the order
    of the text, but any of them where several keys are asked for."""
    total = len(story.facts)
    old, new = _old_and_new(total, odds.one_new, rng)
    if odds.blank and rng.random() < odds.blank:
        old = new = 0
    if story.shape.queries > 1:
        chosen = [int(i) for i in rng.permutation(total)[: old + new]]
    else:
        first = int(rng.integers(0, total - old - new + 1))
        chosen = list(range(first, first + old + new))
    return chosen[:old], chosen[old:]


def _old_and_new(total: int, one_new: float, rng: np.random.Generator) -> tuple[int, int]:
    """How many facts the memory holds already, and how many the section adds."""
    old = int(rng.integers(0, total + 1))
    left = total - old
    if left == 0 or rng.random() < NOTHING_NEW:
        return old, 0
    return old, 1 if rng.random() < one_new else int(rng.integers(1, left + 1))
