"""Text to token ids and back, for any byte-level BPE tokenizer, with documents as data.

Three things that a plain `tokenizer.encode` does not give:

* A document never yields a control token. `<|im_end|>` inside a document stays text.
* A long text is encoded as a stream of blocks, and the ids equal those of encoding it whole.
* Ids decode to bytes, so a chunk edge inside a UTF-8 character loses nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from core.cuts import SPLIT_PROBE, first_cut, inner, is_cut, last_cut
from core.errors import DataMissing, UsageError
from core.types import Message

BLOCK_CHARS = 1 << 15
"""Characters encoded at a time. Long enough to hide the cost of a call, short enough that
the encoder's working memory (about 100 bytes a character) does not show."""


class Tokenizer:
    """A byte-level BPE tokenizer (the Qwen2, Llama 3 and GPT families, the pocket's own).

    `fingerprint` is the SHA-256 of tokenizer.json: part of what made a result.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        chat_template: str | None,
        name: str,
        template_variables: Mapping[str, str | None] | None = None,
    ) -> None:
        self.name = name
        self._spec = spec
        self._chat_template = chat_template
        self._template_variables = dict(template_variables or {})
        self._around: dict[tuple[str, ...], list[list[int]]] = {}
        self.fingerprint = hashlib.sha256(
            json.dumps(spec, sort_keys=True, ensure_ascii=False).encode()
        ).hexdigest()
        if "ByteLevel" not in json.dumps(spec.get("decoder")):
            raise UsageError(
                f"tokenizer {name}: its decoder is {spec.get('decoder')}, expected ByteLevel. "
                "Only byte-level BPE tokenizers can be cut into exact chunks."
            )

    @classmethod
    def load(cls, source: str | Path, revision: str | None = None) -> Tokenizer:
        """Reads tokenizer.json and tokenizer_config.json from a folder, else from the hub.

        Raises:
            DataMissing: no such folder, and the hub cannot be reached.
        """
        folder = Path(source)
        if not (folder / "tokenizer.json").is_file():
            folder = _download(str(source), revision)
        spec = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        config_file = folder / "tokenizer_config.json"
        config = (
            json.loads(config_file.read_text(encoding="utf-8")) if config_file.is_file() else {}
        )
        template = config.get("chat_template")
        template_file = folder / "chat_template.jinja"
        if template is None and template_file.is_file():
            template = template_file.read_text(encoding="utf-8")
        variables = {
            key: value["content"] if isinstance(value, dict) else value
            for key, value in config.items()
            if key in ("bos_token", "eos_token", "pad_token", "unk_token")
        }
        return cls(spec, template, str(source), variables)

    # -- text -> ids -----------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as plain text: nothing in it is a control token."""
        return _ids(self._document, text)

    def count(self, text: str) -> int:
        """Number of tokens of `text` as plain text."""
        return sum(len(ids) for ids in self.stream([text]))

    def stream(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Ids of each of `parts`; their concatenation equals `encode("".join(texts))`."""
        return map(self.encode, self.parts(texts))

    def parts(self, texts: Iterable[str]) -> Iterator[str]:
        """The joined texts in parts that can be encoded by themselves, of about BLOCK_CHARS.

        They are cut where core/cuts.py says. With a tokenizer that fails the probe the whole text
        is one part.
        """
        buffer: list[str] = []
        size = 0
        for text in texts:
            buffer.append(text)
            size += len(text)
            if size < BLOCK_CHARS or not self.splits_at_cuts:
                continue
            joined = "".join(buffer)
            start = 0
            while len(joined) - start >= BLOCK_CHARS:
                cut = last_cut(joined, start, start + BLOCK_CHARS)
                if cut is None:
                    cut = first_cut(joined, start + BLOCK_CHARS)
                if cut is None:
                    break
                yield joined[start:cut]
                start = cut
            buffer = [joined[start:]]
            size = len(joined) - start
        if rest := "".join(buffer):
            yield rest

    @cached_property
    def splits_at_cuts(self) -> bool:
        """Whether texts may be cut where core/cuts.py says: the pre-tokenizer splits there, and
        the ids of the parts are those of the whole."""
        pre = self._document.pre_tokenizer
        if pre is None:
            return False
        edges = {end for _, (_, end) in pre.pre_tokenize_str(SPLIT_PROBE)}
        cuts = [p for p in range(1, len(SPLIT_PROBE)) if is_cut(SPLIT_PROBE, p)]
        if not edges.issuperset(cuts):
            return False
        ends = zip([0, *cuts], [*cuts, None], strict=True)
        return self.encode(SPLIT_PROBE) == [
            i for start, end in ends for i in self.encode(SPLIT_PROBE[start:end])
        ]

    def pre_tokens(self, text: str) -> list[str]:
        """The stretches that the pre-tokenizer cuts `text` into; no token spans two of them."""
        pre = self._document.pre_tokenizer
        return [text] if pre is None else [piece for piece, _ in pre.pre_tokenize_str(text)]

    def splits_between(self, left: str, right: str) -> bool:
        """Whether the joined text is cut into the stretches of `left` and then those of
        `right`, so that its ids are those of `left` followed by those of `right`."""
        return self.pre_tokens(left + right) == self.pre_tokens(left) + self.pre_tokens(right)

    # -- ids -> text -----------------------------------------------------------------------

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of plain-text ids. Control tokens give none."""
        return b"".join(map(self._bytes_of_id.get, ids, repeat(b"")))

    def decode(self, ids: Iterable[int]) -> str:
        """Text of plain-text ids; bytes that are no whole character become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    # -- chat ------------------------------------------------------------------------------

    @property
    def has_chat_template(self) -> bool:
        """Whether chats can be rendered. An endpoint renders them itself."""
        return self._chat_template is not None

    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a chat ready for generation. The template's control tokens are parsed, the
        messages' contents are not: control strings inside them stay text.

        Raises:
            UsageError: the tokenizer has no chat template.
        """
        if not self.has_chat_template:
            raise UsageError(f"tokenizer {self.name} has no chat template in its config")
        around = self._template_ids(tuple(message.role for message in messages))
        ids = list(around[0])
        for message, after in zip(messages, around[1:], strict=True):
            ids += self._content_ids(message)
            ids += after
        return ids

    def chat_text(self, messages: Sequence[Message]) -> str:
        """A chat as the template writes it, for people to look at. Raises as `render_chat`."""
        if self._chat_template is None:
            raise UsageError(f"tokenizer {self.name} has no chat template in its config")
        plain = [{"role": message.role, "content": message.content} for message in messages]
        return _render(self._chat_template, plain, self._template_variables)

    def _content_ids(self, message: Message) -> list[int]:
        """Ids of a content; of what the message knows, only the ends are encoded."""
        text = message.content
        ids: list[int] = []
        done = 0
        for known in message.known if self._takes_known_ids else ():
            at = text.find(known.text, done)
            part = inner(known, self._bytes_of_id) if at >= 0 else None
            if part is None or self._meets_sentence(text, at + part.start, at + part.end):
                continue
            ids += _ids(self._content, text[done : at + part.start])
            ids += part.ids
            done = at + part.end
        return ids + _ids(self._content, text[done:])

    @cached_property
    def _takes_known_ids(self) -> bool:
        normalizer = self._spec.get("normalizer")
        # Sentences are looked for in the normalized text: it would have to be made first.
        plain = normalizer is None or (normalizer == {"type": "NFC"} and not self._sentences)
        return plain and self.splits_at_cuts

    def _meets_sentence(self, text: str, start: int, end: int) -> bool:
        """Whether a token that is a sentence overlaps or touches characters [start, end)."""
        return any(
            text.find(sentence, max(start - len(sentence), 0), end + len(sentence)) >= 0
            for sentence in self._sentences
        )

    def _template_ids(self, roles: tuple[str, ...]) -> list[list[int]]:
        """Ids of what the template writes before, between and after messages of these roles.

        The template runs on marks in place of contents, and each part is encoded by its own
        rule. A mark cannot occur in a template: it holds private-use characters.
        """
        if roles not in self._around:
            marks = [f"\ue000{i}\ue001" for i in range(len(roles))]
            messages = [{"role": r, "content": m} for r, m in zip(roles, marks, strict=True)]
            rest = _render(self._chat_template or "", messages, self._template_variables)
            parts = []
            for mark in marks:
                before, found, rest = rest.partition(mark)
                if not found:
                    raise UsageError(f"the chat template of {self.name} drops or moves a message")
                parts.append(_ids(self._full, before))
            self._around[roles] = [*parts, _ids(self._full, rest)]
        return self._around[roles]

    # -- the three parsers -----------------------------------------------------------------

    @cached_property
    def _full(self) -> Backend:
        """Parses every added token: for the chat template's own text."""
        return Backend.from_str(json.dumps(self._spec))

    @cached_property
    def _document(self) -> Backend:
        """Parses no added token: for documents."""
        return Backend.from_str(json.dumps({**self._spec, "added_tokens": []}))

    @cached_property
    def _content(self) -> Backend:
        """Parses added tokens that are sentences (the pocket's fixed prompt texts), and no
        control token: for messages, which hold a fixed prompt and a document."""
        if not self._sentences:
            return self._document
        added = [t for t in self._spec["added_tokens"] if t["content"] in self._sentences]
        return Backend.from_str(json.dumps({**self._spec, "added_tokens": added}))

    @cached_property
    def _sentences(self) -> frozenset[str]:
        added = self._spec.get("added_tokens", [])
        texts = (t["content"] for t in added if not t["special"])
        return frozenset(text for text in texts if any(c.isspace() for c in text))

    @cached_property
    def _bytes_of_id(self) -> dict[int, bytes]:
        byte_of_char = {char: byte for byte, char in _byte_level_alphabet().items()}
        table: dict[int, bytes] = {}
        for token, index in self._spec["model"]["vocab"].items():
            table[index] = bytes(byte_of_char[c] for c in token if c in byte_of_char)
        for added in self._spec.get("added_tokens", []):
            table[added["id"]] = b"" if added["special"] else added["content"].encode()
        return table


def _ids(backend: Backend, text: str) -> list[int]:
    # encode_batch_fast leaves out the offsets, a third of the time of encode.
    return list(backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)


def _byte_level_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-ins for the 256 bytes: printable bytes stand for themselves,
    the others for the characters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {b: chr(b) for b in printable}
    hidden = (b for b in range(256) if b not in alphabet)
    return alphabet | {b: chr(256 + i) for i, b in enumerate(hidden)}


def _render(template: str, messages: list[dict[str, str]], variables: dict[str, str | None]) -> str:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(text: str) -> None:
        raise UsageError(f"the chat template refuses the messages: {text}")

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = raise_exception
    try:
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, **variables
        )
    except TemplateError as error:
        raise UsageError(f"the chat template does not render: {error}") from error


def _download(source: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                source, revision=revision, allow_patterns=["tokenizer*", "chat_template*"]
            )
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise DataMissing(
            f"no tokenizer.json in {source!r}, and it is not a hub id that can be fetched "
            f"({type(error).__name__}). Give --tokenizer a folder that holds tokenizer.json."
        ) from error
