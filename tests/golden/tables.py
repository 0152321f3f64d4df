"""Golden tables: Parquet and Arrow files of pyarrow in tests/golden/tables, each with its rows as JSON lines (NAME.jsonl), or
with a part of the message that refuses it (NAME.refused); and in unfolding_tables those of unfolding_columns(). Needs pyarrow.

    python tests/golden/tables.py FOLDER [COUNT [SEED]]     writes random tables instead, 200 by default, and

    FLATSHARD_TABLES=FOLDER build/bin/flatshard_tests table_input     reads these
"""
import base64
import datetime
import decimal
import json
import math
import os
import random
import struct
import sys

TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tables")
UNFOLDING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "unfolding_tables")
AS_TEXT = ("decimal", "date", "time", "timestamp")


def json_of(scalar):
    """The value of a pyarrow scalar as a record has it."""
    import pyarrow as pa

    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return json_of(scalar.value)
    if pa.types.is_struct(kind):
        return {field.name: json_of(scalar[i]) for i, field in enumerate(kind)}
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return base64.b64encode(scalar.as_py()).decode()
    if pa.types.is_map(kind):
        return {json_of(entry[0]): json_of(entry[1]) for entry in scalar.values}
    if "list" in str(kind):
        return [json_of(value) for value in scalar.values]
    if pa.types.is_timestamp(kind) and kind.tz:
        kind = pa.timestamp(kind.unit, "UTC")
        return str(scalar.cast(kind).cast(pa.string()))
    if str(kind).startswith(AS_TEXT):
        return str(scalar.cast(pa.string()))
    value = scalar.as_py()
    if pa.types.is_floating(kind):
        return None if math.isnan(value) else float(value)
    return value


def rows_of(table):
    columns = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
    for i in range(table.num_rows):
        yield {name: json_of(column[i]) for name, column in zip(table.column_names, columns)}


def write_rows(path, table):
    with open(os.path.splitext(path)[0] + ".jsonl", "w") as file:
        for row in rows_of(table):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_refusal(path, part):
    with open(os.path.splitext(path)[0] + ".refused", "w") as file:
        file.write(part)


def read_back(path, kind):
    import pyarrow as pa
    import pyarrow.parquet

    if kind == "parquet":
        return pa.parquet.ParquetFile(path).read()
    return (pa.ipc.open_file if kind == "arrow_file" else pa.ipc.open_stream)(path).read_all()


def write_arrow(path, table, kind, batch_rows=1000, **options):
    import pyarrow as pa

    new = pa.ipc.new_file if kind == "arrow_file" else pa.ipc.new_stream
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


# --- random tables ------------------------------------------------------------------------------------------------------

WORDS = ["", "a", "word", "Zürich", "日本語", "🙂", 'say "hi"\n', "tab\t\\", "\x01\x1f\x7f", "x" * 300]


def random_text(dice):
    return "".join(dice.choice(WORDS) for _ in range(dice.randrange(4)))


def random_type(dice, kind, levels):
    """A type, and a function that makes one of its values."""
    import pyarrow as pa

    def of_integers(kind, low, high):
        return kind, lambda: dice.choice([low, high, 0, dice.randint(low, high)])

    def real(scale):
        return lambda: dice.choice([0.0, -0.0, 1.0, 1e16, float("nan"), dice.gauss(0, scale)])

    day = datetime.date(2024, 2, 29)
    moment = lambda: datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=dice.randint(-10**15, 10**16))
    plain = [
        (pa.null(), lambda: None),
        (pa.bool_(), lambda: dice.random() < 0.5),
        of_integers(pa.int8(), -128, 127), of_integers(pa.int16(), -2**15, 2**15 - 1),
        of_integers(pa.int32(), -2**31, 2**31 - 1), of_integers(pa.int64(), -2**63, 2**63 - 1),
        of_integers(pa.uint8(), 0, 255), of_integers(pa.uint16(), 0, 2**16 - 1),
        of_integers(pa.uint32(), 0, 2**32 - 1), of_integers(pa.uint64(), 0, 2**64 - 1),
        (pa.float16(), lambda: dice.choice([0.0, 1.5, -65504.0, 6e-8, float("nan")])),
        (pa.float32(), real(100)), (pa.float64(), real(1e9)),
        (pa.date32(), lambda: day + datetime.timedelta(days=dice.randint(-30000, 30000))),
        (pa.time32("ms"), lambda: datetime.time(dice.randrange(24), dice.randrange(60), 1, 1000 * dice.randrange(1000))),
        (pa.time64("us"), lambda: datetime.time(dice.randrange(24), dice.randrange(60), 1, dice.randrange(10**6))),
        (pa.timestamp("ms"), lambda: moment().replace(microsecond=1000)),
        (pa.timestamp("us"), moment), (pa.timestamp("us", "UTC"), moment), (pa.timestamp("us", "Europe/Berlin"), moment),
        (pa.decimal128(12, 3), lambda: decimal.Decimal(dice.randint(-10**9, 10**9)).scaleb(-3)),
        (pa.decimal256(50, 2), lambda: decimal.Decimal(dice.randint(-10**12, 10**12)).scaleb(-2)),
    ]
    texts = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
    if kind != "parquet":  # pyarrow cannot write every table of them
        texts.append(pa.string_view())
    texts = [(text, lambda: random_text(dice)) for text in texts]
    if levels == 0 or dice.random() < 0.5:
        return dice.choice(plain + 3 * texts)
    shape = dice.randrange(6)
    if shape == 0:
        names = dice.sample(["role", "content", "from", "value", "n"], dice.randint(1, 3))
        members = {name: random_type(dice, kind, levels - 1) for name in names}
        return (pa.struct([(name, member) for name, (member, _) in members.items()]),
                lambda: {name: optional(dice, make) for name, (_, make) in members.items()})
    item, make = random_type(dice, kind, levels - 1)
    if shape == 1:
        keys = lambda: {random_text(dice) + str(i) for i in range(dice.randrange(3))}
        return pa.map_(pa.string(), item), lambda: [(key, optional(dice, make)) for key in sorted(keys())]
    if shape == 2:
        return pa.list_(item, 2), lambda: [optional(dice, make), optional(dice, make)]
    return (dice.choice([pa.list_, pa.large_list])(item),
            lambda: [optional(dice, make) for _ in range(dice.choice([0, 1, 2, 5, 40]))])


def optional(dice, make):
    return None if dice.random() < 0.1 else make()


def unreadable_type(dice, kind):
    import pyarrow as pa

    choices = [
        ("bytes", pa.binary(), lambda: b"\xff\xd8"), ("bytes", pa.binary(2), lambda: b"ab"),
        ("bytes", pa.list_(pa.large_binary()), lambda: [b"x"]),
        ("bytes", pa.struct([("bytes", pa.binary()), ("name", pa.string())]), lambda: {"bytes": b"x", "name": None}),
        ("maps whose keys are not texts", pa.map_(pa.int32(), pa.int32()), lambda: [(1, 2)]),
    ]
    if kind != "parquet":
        choices += [("duration", pa.duration("s"), lambda: 3), ("month_day_nano", pa.month_day_nano_interval(), lambda: (1, 2, 3)),
                    ("run_end_encoded", pa.run_end_encoded(pa.int32(), pa.int32()), None)]
    return dice.choice(choices)


def random_table(dice, kind, rows):
    """A table, and the word that its refusal names, or None."""
    import pyarrow as pa

    names, arrays, refusal = [], [], None
    for i in range(dice.randint(1, 6)):
        column, make = random_type(dice, kind, 3)
        if refusal is None and rows > 0 and dice.random() < 0.02:
            refusal, column, make = unreadable_type(dice, kind)
        nulls = dice.choice([0, 0, 0.1, 0.6, 1])
        if make is None:
            array = pa.RunEndEncodedArray.from_arrays([rows], [7], column)
        else:
            array = pa.array([None if dice.random() < nulls else make() for _ in range(rows)], column)
        names.append(f"column {i}")
        arrays.append(array)
    return pa.table(arrays, names=names), refusal


def parquet_options(dice, table):
    import pyarrow as pa

    options = dict(
        compression=dice.choice(["none", "snappy", "gzip", "brotli", "zstd", "lz4"]),
        data_page_version=dice.choice(["1.0", "2.0"]), version=dice.choice(["2.4", "2.6"]),
        data_page_size=dice.choice([64, 4096, 2**20]), row_group_size=dice.choice([1, 7, 100, 1000]),
        write_batch_size=dice.choice([1, 3, 1024]), store_schema=dice.random() < 0.5,
        write_statistics=dice.random() < 0.5, write_page_index=dice.random() < 0.5,
        write_page_checksum=dice.random() < 0.5, use_compliant_nested_type=dice.random() < 0.5)
    if dice.random() < 0.5:  # with a small limit, the dictionary overflows into another encoding
        return options | dict(use_dictionary=True, dictionary_pagesize_limit=dice.choice([16, 200, 2**20]))
    encodings = {}
    for field in table.schema:
        if pa.types.is_integer(field.type) and field.type.bit_width >= 32:
            encodings[field.name] = dice.choice(["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
        elif pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            encodings[field.name] = dice.choice(["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
        elif pa.types.is_float32(field.type) or pa.types.is_float64(field.type):
            encodings[field.name] = dice.choice(["PLAIN", "BYTE_STREAM_SPLIT"])
        elif pa.types.is_boolean(field.type):
            encodings[field.name] = dice.choice(["PLAIN", "RLE"])
    return options | dict(use_dictionary=False, column_encoding=encodings or None)


def write_random(folder, number, dice):
    import pyarrow as pa
    import pyarrow.parquet

    kind = dice.choice(["parquet"] * 4 + ["arrow_file", "arrow_stream"])
    table, refusal = random_table(dice, kind, dice.choice([0, 1, 7, 100, 400]))
    path = os.path.join(folder, f"{number:03}.{'parquet' if kind == 'parquet' else 'arrow'}")
    if kind != "parquet":
        write_arrow(path, table.slice(min(1, table.num_rows)), kind, dice.choice([1, 64, 1000]),
                    compression=dice.choice([None, "lz4", "zstd"]))
    elif number % 50 == 7:
        refusal = "encrypt"
        write_encrypted(path, table, plaintext_footer=dice.random() < 0.5)
    else:
        try:
            pa.parquet.write_table(table, path, **parquet_options(dice, table))
            read_back(path, kind)
        except pa.ArrowException as error:
            print(f"{path}: another table, because of an error of pyarrow: {error}")
            if os.path.exists(path):
                os.remove(path)
            return write_random(folder, number, dice)
    if refusal:
        write_refusal(path, refusal)
    else:
        write_rows(path, read_back(path, kind))


def write_encrypted(path, table, plaintext_footer=False):
    import pyarrow.parquet as parquet
    import pyarrow.parquet.encryption as encryption

    class Keys(encryption.KmsClient):
        def __init__(self, config):
            super().__init__()

        def wrap_key(self, key, name):
            return base64.b64encode(key)

        def unwrap_key(self, key, name):
            return base64.b64decode(key)

    config = encryption.EncryptionConfiguration(footer_key="footer", uniform_encryption=True, plaintext_footer=plaintext_footer)
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(encryption.KmsConnectionConfig(), config)
    with parquet.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


# Columns of one row whose JSON is longer than a record may be, although they have little: each shows a text of 4 KB 2^18
# times.
def unfolding_columns():
    import pyarrow as pa

    text, count = b"x" * 4096, 2**18
    one_list = lambda values: pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    nested = pa.array([text.decode()])
    for _ in range(3):  # every value of a level is all of the level below, 64 times
        nested = pa.ListViewArray.from_arrays(pa.array([0] * 64, pa.int32()), pa.array([len(nested)] * 64, pa.int32()), nested)
    buffers = [None, pa.py_buffer(struct.pack("<i4sii", len(text), text[:4], 0, 0) * count), pa.py_buffer(text)]
    texts = pa.Array.from_buffers(pa.string_view(), count, buffers)
    images = pa.StructArray.from_arrays([pa.Array.from_buffers(pa.binary_view(), count, buffers), pa.nulls(count, pa.string())],
                                        ["bytes", "path"])
    numbers = pa.array([0] * count, pa.int32())
    return {"list_views": one_list(nested), "texts": one_list(texts), "images": one_list(images),
            "dictionary": one_list(pa.DictionaryArray.from_arrays(numbers, [text.decode()]))}


# --- the golden tables ------------------------------------------------------------------------------------------------------


def main():
    import pyarrow as pa
    import pyarrow.parquet

    os.makedirs(TABLES, exist_ok=True)
    path_of = lambda name: os.path.join(TABLES, name)
    turn = pa.struct([("role", pa.string()), ("content", pa.string()), ("weight", pa.int32())])
    chats = pa.table({
        "messages": pa.array([[{"role": "user", "content": f"Question {i}?", "weight": None},
                               {"role": "assistant", "content": "Answer " + "é" * i, "weight": i}] for i in range(9)] +
                             [[{"role": "user", "content": 'a "quoted"\n\ttext', "weight": 0}, None]], pa.list_(turn)),
        "source": pa.array(["web", None] * 5).dictionary_encode(),
        "score": pa.array([0.25 * i for i in range(9)] + [float("nan")], pa.float32())})
    pa.parquet.write_table(chats, path_of("chats.parquet"), compression="zstd", data_page_version="2.0", row_group_size=4,
                           dictionary_pagesize_limit=64, data_page_size=64)
    values = pa.table({
        "text": ["one", "two", None], "flag": [True, None, False], "half": pa.array([1.5, None, -0.0], pa.float32()),
        "least": pa.array([-2**63, 0, None], pa.int64()), "most": pa.array([2**64 - 1, 0, None], pa.uint64()),
        "day": pa.array([datetime.date(2024, 2, 29), None, datetime.date(1969, 1, 1)]),
        "at": pa.array([datetime.datetime(2024, 2, 29, 1, 2, 3, 4), None, None], pa.timestamp("us", "UTC")),
        "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-0.07")], pa.decimal128(9, 2)),
        "tags": pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int32())),
        "grid": pa.array([[[1, 2], []], [None], None], pa.list_(pa.list_(pa.int16())))})
    pa.parquet.write_table(values, path_of("values.parquet"), compression="snappy", data_page_version="1.0", use_dictionary=False)
    write_arrow(path_of("file.arrow"), values, "arrow_file", 2, compression="zstd")
    write_arrow(path_of("stream.arrow"), chats, "arrow_stream", 4)
    for name, table, kind in (("chats.parquet", chats, "parquet"), ("values.parquet", values, "parquet"),
                              ("file.arrow", values, "arrow_file"), ("stream.arrow", chats, "arrow_stream")):
        assert read_back(path_of(name), kind).column("text" if table is values else "messages").to_pylist() == table.column(0).to_pylist()
        write_rows(path_of(name), table)

    picture = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pictures = pa.table({"image": pa.array([{"bytes": b"\x89PNG", "path": "a.png"}, {"bytes": None, "path": "b.png"}, None], picture),
                         "caption": ["A cat.", "A dog.", "Nothing."]})
    pa.parquet.write_table(pictures, path_of("pictures.parquet"))
    write_rows(path_of("pictures.parquet"), pictures)
    pa.parquet.write_table(pa.table({"sound": [b"RIFF"], "caption": ["A cat."]}), path_of("sounds.parquet"))
    write_refusal(path_of("sounds.parquet"), 'the column "sound" of type binary holds bytes without a character encoding')
    write_encrypted(path_of("encrypted.parquet"), pa.table({"text": ["secret"]}))
    write_refusal(path_of("encrypted.parquet"), "encrypt")

    os.makedirs(UNFOLDING, exist_ok=True)
    for name, column in unfolding_columns().items():
        write_arrow(os.path.join(UNFOLDING, f"{name}.arrow"), pa.table({"x": column}), "arrow_file", compression="zstd")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        dice = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
        os.makedirs(sys.argv[1], exist_ok=True)
        for number in range(int(sys.argv[2]) if len(sys.argv) > 2 else 200):
            write_random(sys.argv[1], number, dice)
