"""The table of operations: a row says how an operation is written, what it may be given and how exact it is."""

from tests.fuzz.rows import blocks, creation, indexing, joins, layers, mutation, pointwise, reductions, spatial, views
from tests.fuzz.rows.row import Row

#: family -> its rows.
FAMILIES: dict[str, tuple[Row, ...]] = {
    "pointwise": pointwise.ROWS,
    "reductions": reductions.ROWS,
    "views": views.ROWS,
    "joins": joins.ROWS,
    "indexing": indexing.ROWS,
    "layers": layers.ROWS,
    "spatial": spatial.ROWS,
    "mutation": mutation.ROWS,
    "creation": creation.ROWS,
    "blocks": blocks.ROWS,
}

#: name -> row.
ROWS: dict[str, Row] = {row.name: row for rows in FAMILIES.values() for row in rows}
