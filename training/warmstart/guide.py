"""Where the heads of a turn should look, and what its prompt foretells: what the base is shown.

Left to itself so small a model finds the right kind of sentence and guesses the document, and
forgets what the start has written into it (checkpoints/README.md). Places count the prompt's tokens
and the reply's together.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.warmstart.points import (
    Part,
    Point,
    Read,
    first_point,
    points_of,
    read_in_row,
)
from training.warmstart.prompts import FixedTexts
from training.warmstart.scenes.scene import MemoryScene, Note
from training.warmstart.stories import Ids, find, find_last, joined

Source = tuple[int, int, int]
"""The place before a value that is said, where the section tells it, and where it stands there: the
same place, but where a document's own name is the value, and its sentence says the other's."""

TITLE_EVERY = 24
"""Of the tokens of documents, one in so many is shown its title."""


class Guide:
    """Of one tokenizer. `fixed`, `found`, `comma`, `newline`: ids; `opens`: what precedes a title,
    or the name that an entry begins with; `assistant`: tokens of a prompt behind its message;
    `thoughts`: whether GRU-Mem thinks."""

    def __init__(
        self,
        fixed: FixedTexts[Ids],
        found: Ids,
        opens: Sequence[int],
        *,
        comma: int,
        newline: int,
        assistant: int,
        thoughts: bool,
    ) -> None:
        self.fixed, self.found, self.opens = fixed, found, opens
        self.comma, self.newline = comma, newline
        self.assistant, self.thoughts = assistant, thoughts

    def read(
        self, notes: Sequence[Note], scene: MemoryScene, prompt: Ids, section: int
    ) -> list[Read]:
        """Where the entries that are said one behind the other stand: as they are, or what they are
        about, in the memory; a name that they begin with in an entry before, or in the question;
        what the section, which begins at `section`, tells. No place of what is told nowhere."""
        held: dict[tuple[int, ...], int] = {}
        at = self.memory_at(prompt, [note.entry for note in scene.old])
        for note in scene.old:
            held[tuple(note.entry)] = held[tuple(note.entry[: note.lead])] = at
            at += len(note.entry)
        asked = find(prompt, scene.question)
        found: list[Read] = []
        said: Ids = []
        for note in notes:
            entry, lead = note.entry, note.lead
            place = held.get(tuple(entry))
            if place is not None:
                parts = [Part(0, len(entry), place)]
            elif lead and (place := held.get(tuple(entry[:lead]))) is not None:
                parts = [Part(0, lead, place)]
            elif lead:
                name = entry[: entry.index(self.comma)]
                before, named = find_last(said, name), find(scene.question, name)
                parts = [Part(0, len(name), before, said=True)] if before >= 0 else []
                parts += [Part(0, len(name), asked + named)] if before < 0 <= named else []
            else:
                parts = []
            if note.value is not None:
                parts.append(Part(lead, len(entry) - lead - 1, section + note.value))
            elif place is None and lead and not note.new:
                parts.append(Part(lead, 1, self.nothing(prompt)))
            found.append(Read(entry, tuple(parts)))
            said += entry
        return found

    def memory_at(self, prompt: Ids, entries: Sequence[Ids]) -> int:
        """Where the entries of a prompt's memory begin."""
        return find(prompt, self.found + joined(entries)) + len(self.found)

    def nothing(self, prompt: Ids) -> int:
        """Where the prompt's message ends."""
        return len(prompt) - self.assistant

    def points(
        self,
        prompt: Ids,
        reply: Ids,
        after: Sequence[Read],
        thought: Sequence[Read],
        *,
        gates: bool,
    ) -> list[Point]:
        """Of a memory turn's reply. The entries of a `thought` are repeated from the thought."""
        nothing = self.nothing(prompt)
        if not gates:
            first = first_point(after, len(prompt) - 1, nothing)
            said = points_of(after, len(prompt) + len(self.found), nothing)
            return [first, *(said if after else ())]
        found = [first_point(thought, len(prompt) - 1, nothing)]
        if self.thoughts and thought:
            at = len(prompt) + len(self.fixed.think_opens) + len(self.found)
            found += points_of(thought, at, nothing)
            again = {tuple(r.entry): r for r in read_in_row([read.entry for read in thought], at)}
            after = [again.get(tuple(read.entry), read) for read in after]
        if after:
            opens = reply.index(self.fixed.update_opens[0]) + len(self.fixed.update_opens)
            at = len(prompt) + opens + len(self.found)
            found += points_of(after, at, nothing)
        return found

    def repeated(self, prompt: Ids, answer: Ids) -> list[Point]:
        """Of an answer, behind a token that opens it, that the memory says word for word."""
        if not answer:
            return [(len(prompt), self.nothing(prompt))]
        place = find_last(prompt, answer)
        return [(len(prompt) + i, place + i) for i in range(len(answer))] if place >= 0 else []

    def sources(self, scene: MemoryScene, prompt: Ids, section: int, reply: Ids) -> list[Source]:
        """Of the values that the section, which begins at `section`, tells, where they are said
        first."""
        found = []
        for note in scene.new:
            if note.mention is not None and note.value is not None:
                at = len(prompt) + find(reply, note.entry)
                found.append((at + note.lead - 1, section + note.mention, section + note.value))
        return found

    def absent(self, scene: MemoryScene, prompt: Ids, reply: Ids) -> list[Source]:
        """Of what is still looked for, where the reply says so: the section does not tell it, and
        the prompt's message ends instead."""
        nothing = self.nothing(prompt)
        pending = [note for note in scene.notes if note.pending]
        places = [len(prompt) + find(reply, note.entry) + note.lead - 1 for note in pending]
        return [(place, nothing, nothing) for place in places]

    def titles(
        self, prompt: Ids, reply: Ids, sources: Sequence[Source]
    ) -> list[tuple[int, int, int]]:
        """Of the places of the sources, and of others now and then."""
        opens, closes = self.opens, (self.comma, self.newline)
        edges = (self.fixed.to_section[0], self.fixed.gated_to_section[0])
        wanted = {place for source in sources for place in source}
        found = []
        first = end = None
        for at, token in enumerate(prompt + reply):
            if token in opens or token in edges:
                first, end = (None if token in edges else at + 1), None
            elif first is not None and end is None and token in closes:
                end = at
            if first is not None and end is not None and (at in wanted or at % TITLE_EVERY == 0):
                found.append((at, first, end))
        return found

    def foretold(self, memory: Sequence[Note], prompt: Ids) -> Ids:
        """Of a memory in its prompt: the places of what its entries are about. A turn says more of
        them there than it adds, so they are learned sooner."""
        at = self.memory_at(prompt, [note.entry for note in memory])
        places: Ids = []
        for note in memory:
            places += range(at, at + note.lead)
            at += len(note.entry)
        return places
