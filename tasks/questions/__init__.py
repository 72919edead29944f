"""Questions on documents that exist: HotpotQA, SQuAD, MemAgent's own files, LongBench."""
