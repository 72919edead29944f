"""Reads a folder of logs with inspect_ai's own reader and data frames, and prints what it found
as JSON. Run by a Python that has inspect_ai, which the project's own may not."""

from __future__ import annotations

import json
import sys

from inspect_ai.analysis import evals_df, messages_df, samples_df
from inspect_ai.log import list_eval_logs, read_eval_log


def main(folder: str) -> None:
    logs = [read_eval_log(info) for info in list_eval_logs(folder, descending=False)]
    logs.sort(key=lambda log: log.eval.task_id)
    samples = [sample for log in logs for sample in log.samples or []]
    evals, frame = evals_df(folder), samples_df(folder)
    found = {
        "tasks": [log.eval.task for log in logs],
        "statuses": [log.status for log in logs],
        "messages": [len(sample.messages) for sample in samples],
        "errors": [sample.error.message if sample.error else None for sample in samples],
        "published": [sample.scores["published"].value for sample in samples],
        "tokens": [sample.model_usage["pocket"].total_tokens for sample in samples],
        "evals_df": {"rows": len(evals), "models": sorted({*evals["model"]})},
        "samples_df": {"rows": len(frame), "strict": sorted(frame["score_strict"])},
        "messages_df": len(messages_df(folder)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
