"""Write Parquet fixtures with other writers than pyarrow, and their rows as pyarrow reads them.

Run it with pyarrow 26.0.1, fastparquet 2026.9.0, duckdb 2.0.1, polars 2.1.0 and datasets 5.0.1
installed, and with Node in a folder that has these packages:

    npm install parquetjs@0.11.2 hyparquet-writer@0.3.5
    python make_parquet_writers.py

It replaces the folder `parquet_writers` beside it. `expected.json` is as `make_parquet.py` has it.
"""

import json
import shutil
import subprocess
from pathlib import Path

import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
from make_parquet import columns

ROOT = Path(__file__).parent / "parquet_writers"
ROWS = 60
FRAME = pd.DataFrame(
    {
        "number": [row * 1000 for row in range(ROWS)],
        "some": pd.array([None if row % 4 == 0 else row for row in range(ROWS)], "Int32"),
        "float": [row / 8 for row in range(ROWS)],
        "text": [None if row % 5 == 0 else f"word {row % 7}" for row in range(ROWS)],
    }
)
BY_NODE = """
import { writeFileSync } from 'node:fs'
import { parquetWriteBuffer } from 'hyparquet-writer'
import parquet from 'parquetjs'
const { ParquetSchema, ParquetWriter } = parquet
const folder = process.argv[2]
const rows = [...Array(60).keys()]
const maybe = (every, row, value) => row % every == 0 ? undefined : value
async function parquetjs(name, compression, useDataPageV2) {
  const kind = (type, optional) => ({ type, compression, optional })
  const schema = new ParquetSchema({
    number: kind('INT64'), some: kind('DOUBLE', true), text: kind('UTF8', true),
    flag: kind('BOOLEAN'), list: { ...kind('INT32'), repeated: true },
  })
  const writer = await ParquetWriter.openFile(schema, `${folder}/${name}.parquet`, { useDataPageV2 })
  writer.setRowGroupSize(40)
  for (const row of rows) await writer.appendRow({
    number: row * 1000, some: maybe(4, row, row / 8), text: maybe(5, row, 'word ' + row % 7),
    flag: row % 3 == 0, list: [...Array(row % 3).keys()],
  })
  await writer.close()
}
await parquetjs('parquetjs_plain', 'UNCOMPRESSED', false)
await parquetjs('parquetjs_snappy', 'SNAPPY', true)
await parquetjs('parquetjs_gzip', 'GZIP', true)
const some = (every, value) => rows.map(row => row % every == 0 ? null : value(row))
const written = parquetWriteBuffer({ columnData: [
  { name: 'number', data: rows, type: 'INT32' },
  { name: 'long', data: rows.map(row => BigInt(row) * 1000n), type: 'INT64' },
  { name: 'few', data: rows.map(row => row % 3 + 0.5), type: 'DOUBLE' },
  { name: 'text', data: some(5, row => 'word ' + row % 7) },
]})
writeFileSync(`${folder}/hyparquet.parquet`, Buffer.from(written))
"""


def main() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir()
    node = ["node", "--input-type=module", "-", str(ROOT)]
    subprocess.run(node, input=BY_NODE, text=True, check=True)
    for codec in ["SNAPPY", "ZSTD", "BROTLI", "LZ4"]:
        path = ROOT / f"fastparquet_{codec.lower()}.parquet"
        fastparquet.write(path, FRAME, compression=codec, row_group_offsets=[0, 40])
    table = duckdb.sql("select * from FRAME")
    for codec in ["snappy", "gzip", "brotli"]:
        table.write_parquet(str(ROOT / f"duckdb_{codec}.parquet"), compression=codec)
    pl.from_pandas(FRAME).write_parquet(ROOT / "polars_zstd.parquet", row_group_size=40)
    expected = {path.stem: columns(pq.read_table(path)) for path in sorted(ROOT.glob("*.parquet"))}
    (ROOT / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
