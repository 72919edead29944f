from dataclasses import dataclass

from core.answers import extract_answer
from core.rollout import in_thread
from core.tokens import Tokenizer
from core.types import Answer, Chat, Message, Problem


@dataclass(frozen=True)
class Settings:
    chunk_tokens: int = 400
    reply_tokens: int = 64


class MyAgent:
    def __init__(self, tokenizer: Tokenizer, settings: Settings) -> None:
        self.tokenizer, self.settings = tokenizer, settings

    async def answer(self, problem: Problem, chat: Chat) -> Answer:
        notes, question, most = "", problem.question, self.settings.reply_tokens
        chunks = problem.context.chunks(self.tokenizer, self.settings.chunk_tokens)
        async for chunk in in_thread(chunks):
            ask = [Message("user", f"{chunk.text}\n\nNotes: {notes}\nTake notes for: {question}")]
            notes = (await chat(ask, max_tokens=most, tag="memory", reads=[chunk.tokens])).reply
        ask = [Message("user", f"{notes}\n\n{question} Say: the answer is (answer)")]
        reply = (await chat(ask, max_tokens=most, tag="answer")).reply
        return Answer(reply, extract_answer(reply))
