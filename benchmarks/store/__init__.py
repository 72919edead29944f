"""The store of one run: a SQLite file in WAL mode, committed turn by turn.

    run     what was asked for: the settings, fixed for the life of the run
    session one row a start of the command: versions, revision, machine
    cell    task x length x method x model, with the numbers of samples owed and of their draws
    sample  how each draw of a finished sample ended: its reply and prediction, or its error; and
            where in the context its evidence stands
    score   its scores, by profile and metric
    turn    every turn as it ended, with what the method told of it; prompts are kept as a hash,
            since they can be made again
    aside   what few turns have: the thoughts of a reasoning model, what an endpoint took for it

A sample that failed is owed again at the next start; its finished turns are not asked twice.
A killed process loses the turn in flight and nothing else.
"""

from benchmarks.store.rows import Cell, Place
from benchmarks.store.schema import SCHEMA, STORE_NAME, VERSION
from benchmarks.store.store import Store

__all__ = ["SCHEMA", "STORE_NAME", "VERSION", "Cell", "Place", "Store"]
