"""Where an answer comes from: chunks after which the words of the final memory first appeared."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.asking.sources import Ended, Source, sources
from core.tokens import Tokenizer
from core.types import TokenSpan, Turn

QUESTION = "What is the special number of Oslo?"
PROMPTS = ("No previous memory", "Update the memory with the section.")


def read(number: int, memory: str | None, reply: str = "", tag: str = "memory") -> Turn:
    """A turn that read chunk `number`, of ten tokens."""
    span = TokenSpan(10 * number, 10 * number + 10)
    return Turn(tag, (), reply or memory or "", "stop", 9, 9, 0.1, (span,), memory)


def answered(reply: str, reads: Sequence[TokenSpan] = ()) -> Turn:
    return Turn("answer", (), reply, "stop", 9, 9, 0.1, tuple(reads))


def found(
    turns: Sequence[Turn], answer: str, tokenizer: Tokenizer, text: str = ""
) -> list[tuple[int, tuple[str, ...]]]:
    """(first token, words) of the sources."""
    ended = Ended(turns, answer, (QUESTION, *PROMPTS))
    ids = tokenizer.encode(text.strip())
    result: list[Source] = sources(ended, lambda span: tokenizer.decode(ids[span.start : span.end]))
    return [(source.span.start, source.words) for source in result]


def test_a_word_comes_from_the_first_memory_that_has_it(tokenizer: Tokenizer) -> None:
    turns = [
        read(0, "No previous memory"),
        read(1, "Oslo was founded in 1048."),
        read(2, "Oslo was founded in 1048. Its special number is 7."),
        read(3, "The special number of Oslo is 7, founded 1048."),
        answered("Therefore, the answer is 7."),
    ]
    assert found(turns, "7", tokenizer) == [(20, ("7",)), (10, ("founded", "1048"))]


def test_what_the_method_knew_before_it_read_is_no_source(tokenizer: Tokenizer) -> None:
    turns = [read(0, "No previous memory"), read(1, "No previous memory"), answered("Oslo")]
    assert found(turns, "Oslo", tokenizer) == []


def test_a_word_that_was_lost_and_found_again_comes_from_where_it_first_was(
    tokenizer: Tokenizer,
) -> None:
    turns = [read(0, "it is 7"), read(1, "nothing"), read(2, "it is 7"), answered("7")]
    assert found(turns, "7", tokenizer)[0][0] == 0


def test_notes_are_looked_at_where_there_is_no_memory(tokenizer: Tokenizer) -> None:
    turns = [
        read(0, None, "Paris has 5", tag="notes"),
        read(1, None, "it is 7", tag="notes"),
        Turn("merge", (), "Paris has 5, it is 7", "stop", 9, 9, 0.1),
        answered("7"),
    ]
    assert found(turns, "7", tokenizer) == [(10, ("7",))]


def test_a_method_that_reads_all_at_once_has_what_it_read(tokenizer: Tokenizer) -> None:
    assert found([answered("7", [TokenSpan(0, 500)])], "7", tokenizer) == [(0, ())]
    assert found([answered("7")], "7", tokenizer) == []


def test_of_several_stretches_those_that_hold_the_answer(tokenizer: Tokenizer) -> None:
    text = "The sky is blue. The magic is 7 today. The grass is green. " * 40
    ids = tokenizer.encode(text.strip())
    spans = [TokenSpan(start, start + 12) for start in range(0, 600, 60)]
    holding = [span for span in spans if "7" in tokenizer.decode(ids[span.start : span.end])]
    assert 0 < len(holding) < len(spans)
    turn = answered("7", spans)
    assert found([turn], "7", tokenizer, text) == [(span.start, ("7",)) for span in holding]
    assert len(found([turn], "nowhere", tokenizer, text)) == len(spans)
