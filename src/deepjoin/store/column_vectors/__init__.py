"""Column vectors of a lake: made from what its segments store, kept beside it, searched."""

from deepjoin.store.column_vectors.columns import (
    SPACES,
    About,
    ColumnVectors,
    known_rows,
    merge_rows,
    write_rows,
)
from deepjoin.store.column_vectors.encode import (
    Encode,
    Encoded,
    blocks,
    both_about,
    both_digest,
    both_query,
    both_rows,
    encode_here,
    finish_both,
    finish_columns,
    finish_sketch,
    meaning_about,
    meanings,
)
from deepjoin.store.column_vectors.frequency import FrequencySnapshot, write_frequency
from deepjoin.store.column_vectors.meaning import Meaning, meaning_digest, meaning_rows
from deepjoin.store.column_vectors.sketch import Sketcher, sketch_digest
from deepjoin.store.column_vectors.stored_columns import segment_columns

__all__ = [
    "SPACES",
    "About",
    "ColumnVectors",
    "Encode",
    "Encoded",
    "FrequencySnapshot",
    "Meaning",
    "Sketcher",
    "blocks",
    "both_about",
    "both_digest",
    "both_query",
    "both_rows",
    "encode_here",
    "finish_both",
    "finish_columns",
    "finish_sketch",
    "known_rows",
    "meaning_about",
    "meaning_digest",
    "meaning_rows",
    "meanings",
    "merge_rows",
    "segment_columns",
    "sketch_digest",
    "write_frequency",
    "write_rows",
]
