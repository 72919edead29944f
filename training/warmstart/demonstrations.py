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
  not say how much there is. Its answer turn: the entries in `\boxed{...}`.

Tasks: RULER's niah with the haystack of noise or of needles, and variable tracking (`vt`,
entries are bare names), as PROTOCOL 2.2 has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Literal

import numpy as np
from tokenizers import Tokenizer

from training.warmstart import pocket_tokenizer as texts
from training.warmstart.mimetic import Landmarks

Kind = Literal["memory", "answer", "full_context", "gru_memory", "gru_answer"]
Ids = list[int]

NOISE_LINE = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
)
CHUNK_TOKENS = 512
STRAY_NEEDLES = 0.03
"""Share of noise lines that are needles not asked for, per key hidden but not asked for."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One turn: what the model reads, and what it should reply (closed by `<|im_end|>`).

    `added`: entries that a memory turn adds; a keep turn has none.
    """

    kind: Kind
    task: str
    prompt: Ids
    reply: Ids
    added: int = 0


@dataclass(frozen=True, slots=True)
class TaskShape:
    """A task's numbers, and how often it is drawn; `direct` is the factor on its share of
    full-context turns."""

    name: str
    haystack: Literal["noise", "needle"]
    keys: int = 1
    values: int = 1
    queries: int = 1
    weight: float = 1.0
    direct: float = 1.0


@dataclass(frozen=True, slots=True)
class Fact:
    """A line worth remembering: its ids, the entry it becomes, and the part of the line
    [start, end) that must be inside a section for the entry to be written."""

    line: Ids
    entry: Ids
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Story:
    """A question with all its facts, in the order of the text."""

    question: Ids
    facts: tuple[Fact, ...]
    question_order: tuple[int, ...]
    near_keys: tuple[tuple[int, int], ...] = field(default=())


class DemonstrationWriter:
    """Writes demonstrations from an explicit RNG. Holds the tokenizer's pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        def ids(text: str) -> Ids:
            return list(tokenizer.encode(text, add_special_tokens=False).ids)

        self._ids = ids
        self.adjectives = [ids(f" {word}") for word in texts.read_words("adjectivelist")]
        self.nouns = [ids(f"-{word}") for word in texts.read_words("nounlist")]
        self.noise = ids(NOISE_LINE)
        self.needle_head = ids("One of the special magic numbers for")
        self.is_, self.stop, self.stop_line = ids(" is:"), ids("."), ids(".\n")
        self.comma, self.comma_and = ids(","), ids(", and")
        self.found, self.no_memory = ids(texts.FOUND), ids(texts.NO_MEMORY)
        self.answer_is, self.no_answer = ids(texts.ANSWER_IS), ids(texts.NO_ANSWER)
        self.user = ids("<|im_start|>user\n")
        self.assistant = ids("<|im_end|>\n<|im_start|>assistant\n")
        self.end = ids("<|im_end|>")
        fixed = [ids(text) for text in texts.PROMPT_TEXTS]
        (self.memory_head, self.answer_head, self.boxed_head) = fixed[:3]
        (self.to_memory, self.to_section) = fixed[3:5]
        (self.memory_tail, self.answer_tail, self.text_head, self.text_tail) = fixed[5:9]
        (self.format_tail, self.hidden_one, self.hidden_some) = fixed[9:12]
        (self.what_is, self.what_are, self.mentioned, self.track, self.find) = fixed[12:17]
        self.in_text = fixed[17]
        self.gru_slots = fixed[20:24]
        self.yes, self.no, self.update_opens, self.update_closes = fixed[24:28]
        self.go_on, self.finish, self.boxed = fixed[28:31]
        self.box_closes = ids("}")
        self.var, self.equals, self.space = ids(" VAR"), ids(" ="), ids(" ")
        self.spaced_noise = ids(" " + NOISE_LINE)
        self._unspaced = {ids(f" {word}")[0]: ids(word)[0] for word in ("The", "VA")}
        self._numbers = [ids(f" {value:03d}")[0] for value in range(1000)]
        self._threes = [ids(f"{value:03d}")[0] for value in range(1000)]
        self._ones = [ids(str(value))[0] for value in range(10)]

    @property
    def landmarks(self) -> Landmarks:
        """What the mimetic start knows by id."""
        asked = (self.mentioned[0], self.comma[0])
        return Landmarks(start=self.user[0], asked=asked, lead=self.needle_head[-1])

    def key(self, rng: np.random.Generator) -> tuple[int, int]:
        return int(rng.integers(len(self.adjectives))), int(rng.integers(len(self.nouns)))

    def key_ids(self, key: tuple[int, int]) -> Ids:
        return self.adjectives[key[0]] + self.nouns[key[1]]

    def value(self, rng: np.random.Generator) -> Ids:
        """A number 1000000..9999999 as three ids: ` 123`, `456`, `7`."""
        number = int(rng.integers(1_000_000, 10_000_000))
        head, rest = divmod(number, 10_000)
        return [self._numbers[head], self._threes[rest // 10], self._ones[rest % 10]]

    def needle(self, key: Ids, value: Ids) -> Fact:
        tail = key + self.is_ + value
        start = len(self.needle_head)
        line = self.needle_head + tail + self.stop_line
        return Fact(line, tail + self.stop, start, start + len(tail))

    def niah(self, shape: TaskShape, rng: np.random.Generator) -> Story:
        """A niah question with the needles asked for, shuffled. Of a task that hides more
        keys than it asks for, `hay` strews the others."""
        keys = [self.key(rng) for _ in range(shape.queries)]
        parts = [self.key_ids(key) for key in keys]
        facts = [
            (index, self.needle(part, self.value(rng)))
            for index, part in enumerate(parts)
            for _ in range(shape.values)
        ]
        facts = [facts[i] for i in rng.permutation(len(facts))]
        query = list(parts[0])
        for index, part in enumerate(parts[1:], start=1):
            query += (self.comma_and if index == len(parts) - 1 else self.comma) + part
        if shape.queries * shape.values == 1:
            question = self.hidden_one + self.what_is + query + self.mentioned
        else:
            question = self.hidden_some + self.what_are + query + self.mentioned
        order = tuple(sorted(range(len(facts)), key=lambda i: facts[i][0]))
        return Story(question, tuple(fact for _, fact in facts), order, tuple(keys))

    def variables(self, rng: np.random.Generator, hops: int = 4) -> Story:
        """One chain of `hops` + 1 variables, in MemAgent's form: all lines start with a space."""
        letters = np.array(list(ascii_uppercase))
        names = ["".join(rng.choice(letters, 5)) for _ in range(hops + 1)]
        value = str(int(rng.integers(10_000, 99_999)))
        facts = []
        for index, name in enumerate(names):
            name_ids = self._ids(f" {name}")
            head = self.var + name_ids
            right = f" {value}" if index == 0 else f" VAR {names[index - 1]}"
            line = head + self.equals + self._ids(right) + ([] if index == 0 else self.space)
            facts.append(Fact(line, name_ids + self.stop, len(self.var), len(head)))
        question = self.track + self.find + self._ids(f" {value}") + self.in_text
        return Story(question, tuple(facts), tuple(range(hops + 1)))

    def story(self, shape: TaskShape, rng: np.random.Generator) -> Story:
        return self.variables(rng) if shape.name == "vt" else self.niah(shape, rng)

    def hay(self, shape: TaskShape, story: Story, near: float, rng: np.random.Generator) -> Ids:
        """One line of haystack. A needle line shares a word with a key asked for with
        probability `near`: such neighbours are rare by chance and decide the hard cases."""
        if shape.name == "vt":
            return self.spaced_noise
        others = STRAY_NEEDLES * (shape.keys - shape.queries)
        if shape.haystack == "noise" and (not others or rng.random() >= others):
            return self.noise
        key = self.key(rng)
        if story.near_keys and rng.random() < near:
            other = story.near_keys[int(rng.integers(len(story.near_keys)))]
            key = (other[0], key[1]) if rng.random() < 0.5 else (key[0], other[1])
            if key in story.near_keys:
                key = self.key(rng)
        return self.needle(self.key_ids(key), self.value(rng)).line

    def section(
        self,
        shape: TaskShape,
        story: Story,
        new: Sequence[int],
        tokens: int,
        near: float,
        rng: np.random.Generator,
        whole: bool = False,
    ) -> tuple[Ids, list[int]]:
        """`tokens` consecutive ids of a context that holds the facts `new`, and which of
        them stand there whole. `whole`: begins and ends with whole lines, as a context."""
        lines: list[tuple[Ids, int]] = []
        size = sum(len(story.facts[i].line) for i in new)
        slack = 0 if whole else 40
        while True:
            line = self.hay(shape, story, near, rng)
            if whole and size + len(line) > tokens:
                break
            lines.append((line, -1))
            size += len(line)
            if size >= tokens + slack:
                break
        places = np.sort(rng.choice(max(len(lines), len(new)), len(new), replace=False))
        for place, index in sorted(zip(places, new, strict=True), reverse=True):
            lines.insert(int(place), (story.facts[index].line, index))
        ids: Ids = []
        spans: list[tuple[int, int, int]] = []
        for line, index in lines:
            if index >= 0:
                fact = story.facts[index]
                spans.append((len(ids) + fact.start, len(ids) + fact.end, index))
            ids += line
        ids[0] = self._unspaced.get(ids[0], ids[0])
        if whole:
            return ids, [index for _, _, index in spans]
        start = 0 if rng.random() < 0.1 else int(rng.integers(0, min(slack, len(ids) - tokens) + 1))
        cut = ids[start : start + tokens]
        inside = [i for a, b, i in spans if a >= start and b <= start + tokens]
        return cut, inside

    def memory_text(self, entries: Sequence[Ids]) -> Ids:
        if not entries:
            return self.no_memory
        return self.found + [token for entry in entries for token in entry]

    def memory_turn(
        self,
        shape: TaskShape,
        budget: int,
        near: float,
        rng: np.random.Generator,
        blank: float = 0.0,
        slips: float = 0.0,
        *,
        gates: bool = False,
    ) -> Demonstration:
        """An update or keep turn of at most `budget` tokens, reply included. With probability
        `blank`, one with an empty memory and nothing to find: most turns of a long context.
        With probability `slips`, a keep turn drops the memory instead: what the demonstrator
        does wrong, for RL to undo. `gates`: in GRU-Mem's form, where a slip opens the update
        gate for nothing."""
        story = self.story(shape, rng)
        total = len(story.facts)
        old_count, new_count = _old_and_new(total, rng)
        if blank and rng.random() < blank:
            old_count = new_count = 0
        first = 0 if shape.queries > 1 else int(rng.integers(0, total - old_count - new_count + 1))
        chosen = list(range(first, first + old_count + new_count))
        if shape.queries > 1:
            chosen = [int(i) for i in rng.permutation(total)[: old_count + new_count]]
        old = [story.facts[i].entry for i in chosen[:old_count]]
        if rng.random() < 0.05 and shape.name != "vt":
            stray = self.needle(self.key_ids(self.key(rng)), self.value(rng)).entry
            old.insert(int(rng.integers(len(old) + 1)), stray)
        memory = self.memory_text(old)
        new = chosen[old_count:]
        opens, to_memory, to_section, closes = (
            self.gru_slots
            if gates
            else (self.memory_head, self.to_memory, self.to_section, self.memory_tail)
        )
        head = self.user + opens + story.question + to_memory + memory + to_section
        tail = closes + self.assistant
        new_size = sum(len(story.facts[i].entry) for i in new) + (4 if gates else 0)
        spare = budget - len(head) - len(tail) - len(memory) - new_size - 1
        size = min(CHUNK_TOKENS, spare - int(rng.integers(0, 8)))
        section, inside = self.section(shape, story, new, size, near, rng)
        if rng.random() < 0.1 and section[-1:] == self.stop_line:
            section = section[:-1] + self.stop
        slipped = bool(slips and old and not inside and rng.random() < slips)
        entries = [] if slipped else old + [story.facts[i].entry for i in inside]
        reply = self.memory_text(entries)
        if gates:
            known = old_count + len(inside) == shape.queries and shape.values == 1
            ends = known and not slipped and shape.name != "vt"
            reply = (
                (self.yes if inside or slipped else self.no)
                + (self.update_opens + reply + self.update_closes)
                + (self.finish if ends else self.go_on)
            )
        kind: Kind = "gru_memory" if gates else "memory"
        prompt = head + section + tail
        return Demonstration(kind, shape.name, prompt, reply + self.end, len(inside))

    def answer_turn(
        self, shape: TaskShape, rng: np.random.Generator, *, boxed: bool = False
    ) -> Demonstration:
        """The last turn: the memory's entries become the answer. `boxed`: in GRU-Mem's form."""
        story = self.story(shape, rng)
        total = len(story.facts)
        count = total if rng.random() < 0.6 else int(rng.integers(0, total + 1))
        entries = [story.facts[i].entry for i in range(count)]
        if rng.random() < 0.05 and shape.name != "vt":
            stray = self.needle(self.key_ids(self.key(rng)), self.value(rng)).entry
            entries.insert(int(rng.integers(len(entries) + 1)), stray)
        opens = self.boxed_head if boxed else self.answer_head
        head = self.user + opens + story.question + self.to_memory
        prompt = head + self.memory_text(entries) + self.answer_tail + self.assistant
        reply = self.answer_text(entries)
        if boxed:
            inside = [i for entry in entries for i in entry] or self.no_answer
            reply = self.boxed + inside + self.box_closes
        kind: Kind = "gru_answer" if boxed else "answer"
        return Demonstration(kind, shape.name, prompt, reply + self.end)

    def answer_text(self, entries: Sequence[Ids]) -> Ids:
        if not entries:
            return self.answer_is + self.no_answer
        return self.answer_is + [token for entry in entries for token in entry]

    def full_context(
        self, shape: TaskShape, budget: int, near: float, rng: np.random.Generator
    ) -> Demonstration:
        """The direct answer from a whole context of at most `budget` tokens in all."""
        story = self.story(shape, rng)
        present = list(range(len(story.facts)))
        if rng.random() < 0.05:
            present = []
        order = [i for i in story.question_order if i in present]
        reply = self.answer_text([story.facts[i].entry for i in order]) + self.end
        ends = [self.text_head, self.text_tail, story.question, self.format_tail]
        size = budget - len(reply) - sum(map(len, ends)) - len(self.user) - len(self.assistant)
        text, _ = self.section(shape, story, present, size, near, rng, whole=True)
        if text[-1:] == self.stop_line:
            text = text[:-1] + self.stop
        prompt = self.user + self.text_head + text + self.text_tail + story.question
        prompt = prompt + self.format_tail + self.assistant
        return Demonstration("full_context", shape.name, prompt, reply)


def _old_and_new(total: int, rng: np.random.Generator) -> tuple[int, int]:
    """How many facts the memory holds already, and how many the section adds."""
    old = int(rng.integers(0, total + 1))
    left = total - old
    if left == 0 or rng.random() < 0.4:
        return old, 0
    return old, 1 if rng.random() < 0.85 else int(rng.integers(1, left + 1))
