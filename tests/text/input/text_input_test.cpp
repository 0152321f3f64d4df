#include "text/input/text_input.h"

#include <filesystem>
#include <fstream>

#include "runtime/text.h"
#include "tests/test.h"
#include "text/data/corpus.h"
#include "text/input/text_kind.h"

using namespace flatshard;

namespace {

using Texts = std::vector<std::string>;

// Two JSON lines, as gzip and zstd compress them.
const std::string kLines = "{\"text\": \"aaa\"}\n{\"text\": \"bbbb\"}\n";
const std::string kGzip(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\x49\xad\x28\x51\xb2\x52\x50\x4a\x4c\x4c\x54\xaa\xe5"
    "\xaa\x86\xf3\x93\x80\x00\x28\x00\x00\xc1\x80\xc9\xd3\x21\x00\x00\x00",
    43);
const std::string kZstd(
    "\x28\xb5\x2f\xfd\x20\x21\xed\x00\x00\xb8\x7b\x22\x74\x65\x78\x74\x22\x3a\x20\x22\x61\x61\x61\x22\x7d\x0a"
    "\x62\x62\x62\x62\x22\x7d\x0a\x01\x00\x66\x9b\x4b",
    38);

std::string content_of(const std::string& name, const std::string& bytes) {
  std::ofstream(name, std::ios::binary) << bytes;
  TextInput input(name);
  std::string text;
  for (std::string_view next; !(next = input.next()).empty(); input.skip(next.size())) text += next;
  CHECK(input.bytes() == std::ssize(text));
  CHECK(input.file_bytes() == std::ssize(bytes));
  return text;
}

std::string error_of(const std::string& name, const std::string& bytes) {
  return test::error_of([&] { content_of(name, bytes); });
}

Texts elements_of(const std::string& json) {
  std::ofstream("array.json", std::ios::binary) << json;
  TextInput input("array.json");
  REQUIRE(is_json_array(input));
  Texts found;
  each_element(input, [&](const std::string& element, int64_t line, int64_t number) {
    found.push_back(str(line, ' ', number, ' ', element));
  });
  return found;
}

// A build without the library refuses with what to install; then the test is skipped.
bool lacks(std::unique_ptr<Decompressor> (*make)()) {
  const std::string error = test::error_of([&] { make(); });
  if (error.empty()) return false;
  CHECK(error.find("-dev, then configure and build again") != std::string::npos);
  test::skip(error);
  return true;
}

void check_compressed(const std::string& ending, const std::string& compressed) {
  const std::string name = "lines.jsonl" + ending;
  CHECK(content_of(name, compressed) == kLines);
  CHECK(content_of("lines.txt", compressed) == kLines);  // the content decides
  CHECK(content_of(name, compressed + compressed) == kLines + kLines);
  for (size_t size = 5; size < compressed.size(); ++size) {
    CAPTURE(size);
    CHECK(error_of(name, compressed.substr(0, size)) ==
          name + ": ends in the middle of its compressed data: it is cut off");
  }
  CHECK(!error_of(name, compressed + "more text").empty());
  CHECK(error_of(name, kLines).find("but its content is not") != std::string::npos);
  CHECK(error_of(name, "").find("but its content is not") != std::string::npos);
}

}  // namespace

TEST_CASE("text compressed with gzip is read, and refused where it is damaged or cut off") {
  if (lacks(make_gzip_decompressor)) return;
  check_compressed(".gz", kGzip);
  for (const size_t byte : {2, 12, 20, 38}) {  // gzip has a checksum, zstd not always
    std::string damaged = kGzip;
    damaged[byte] ^= 0x55;
    CHECK(error_of("lines.jsonl.gz", damaged).find("gzip data are damaged") != std::string::npos);
  }
  CHECK(error_of("lines.jsonl.gz", kGzip + "more text")
            .starts_with("lines.jsonl.gz: its gzip data are damaged"));
}

TEST_CASE("text compressed with zstd is read, and refused where it is damaged or cut off") {
  if (lacks(make_zstd_decompressor)) return;
  check_compressed(".zst", kZstd);
  const std::string skippable(
      "\x50\x2a\x4d\x18\x03\x00\x00\x00"
      "abc",
      11);
  CHECK(content_of("lines.jsonl.zst", skippable + kZstd) == kLines);
  CHECK(error_of("lines.jsonl.zst", kGzip).find("named like a file of zstd") != std::string::npos);
}

TEST_CASE("files that are not text are refused by name, first bytes, zero bytes or invalid UTF-8") {
  for (const char* name : {"a.csv", "a.CSV", "a.tsv", "a.csv.gz", "a.xlsx", "a.pdf", "a.zip", "a.tar.gz",
                           "a.bz2", "a.safetensors", "a.bin", "a.db", "a.png", "a.so"}) {
    CAPTURE(name);
    CHECK(error_of(name, "text").starts_with(str(name, ": ")));
    CHECK(error_of(name, "text").find(", not text: ") != std::string::npos);
  }
  for (const char* name : {"a.parquet", "a.PARQUET.gz", "a.arrow"})
    CHECK(error_of(name, "text").find(": is named like a table") != std::string::npos);
  CHECK(error_of("a.feather", "FEA1more text").find("pandas.read_feather('a.feather')") != std::string::npos);
  for (const std::string& begin : {std::string("PAR1"), std::string("FLATTOK2"), std::string("\xff\xfe"),
                                   std::string("PK\x03\x04"), std::string("%PDF-1.7")})
    for (const char* name : {"a.txt", "a.jsonl", "a"}) {
      CAPTURE(begin);
      CHECK(error_of(name, begin + "more text").find(", not text: ") != std::string::npos);
    }
  CHECK(error_of("a.txt", std::string("ab\0c", 4)) ==
        "a.txt: is not text: byte 2 is zero; name a file of text");
  const std::string latin = "caf\xe9 au lait";  // one byte of twelve
  CHECK(content_of("a.txt", latin) == latin);
  CHECK(error_of("a.txt", "\xe9\xe8 and so on")
            .starts_with("a.txt: is not UTF-8 text: 17% of its first 12 bytes"));
  CHECK(content_of("a.txt", "\xc3\xa9\xc3") == "\xc3\xa9\xc3");  // cut off within a character
}

TEST_CASE("names say which files are records, and which a run may make tokens of") {
  for (const char* name : {"a.jsonl", "a.json", "a.ndjson", "a.JSONL.gz", "b/a.json.zst", "a.jsonl.zstd"}) {
    CHECK(text_kind(name) == TextKind::records);
    CHECK(is_text_name(name));
  }
  for (const char* name : {"a.txt", "a.txt.gz"}) {
    CHECK(text_kind(name) == TextKind::text);
    CHECK(is_text_name(name));
  }
  for (const char* name : {"a", "a.md", "a.jsonl.d/b", "a.gz", "jsonl", "a.jsonl.tok"})
    CHECK(!is_text_name(name));
}

TEST_CASE("the elements of a JSON array are cut apart wherever buffers end") {
  CHECK(elements_of("[]").empty());
  CHECK(elements_of(" \n[ \n ]\n\n").empty());
  CHECK(elements_of("\xef\xbb\xbf[1]") == Texts{"1 1 1"});
  CHECK(elements_of("[{\"a\": \"],}\\\"[\"}\n,\n{\"b\": [1, {}]} ]") ==
        Texts{"1 1 {\"a\": \"],}\\\"[\"}\n", "3 2 {\"b\": [1, {}]} "});
  std::string json = "[", expected;
  for (int i = 0; i < 40000; ++i)
    json += str(i ? ",\n" : "", "{\"text\": \"", std::string(static_cast<size_t>(i % 37), 'x'), "\"}");
  const Texts many = elements_of(json + "]");
  REQUIRE(many.size() == 40000);
  CHECK(many.back().starts_with("40000 40000 {"));
}

TEST_CASE("a JSON array that is cut off, or separated wrongly, is refused with its line") {
  for (const auto& [json, error] : std::vector<std::pair<std::string, std::string>>{
           {"[", "1: ends before its array does, after 0 complete elements: it is cut off"},
           {"[{},\n{}", "2: ends before its array does, after 1 complete element: it is cut off"},
           {"[{\"a\": \"]", "1: ends before its array does, after 0 complete elements: it is cut off"},
           {"[{},\n]", "2: has a comma too many, after element 1"},
           {"[,{}]", "1: has a comma too many, after element 0"},
           {"[{},,{}]", "1: has a comma too many, after element 1"},
           {"[{}]\n[{}]", "2: has text after the array, must be one array, or one record per line"}})
    CHECK(test::error_of([&] { elements_of(json); }) == "array.json:" + error);
}

TEST_CASE("an array of records is read like lines, and errors name line and record") {
  const auto texts = [](const std::string& json) {
    std::ofstream("records.json") << json;
    Texts found;
    read_records("records.json", TextSplit::none,
                 [&](const Record& r) { found.push_back(text_field(r.text, "text", r.where)); });
    return found;
  };
  const auto error = [&](const std::string& json) { return test::error_of([&] { texts(json); }); };
  CHECK(texts("[{\"text\": \"a\"},\n {\"text\": \"b\"}]") == Texts{"a", "b"});
  CHECK(texts("{\"text\": \"a\"}\n{\"text\": \"b\"}\n") == Texts{"a", "b"});
  const auto missing = [&](const std::string& json, std::initializer_list<std::string> parts) {
    return test::missing_from(error(json), parts);
  };
  CHECK(missing("[{\"text\": \"a\"},\n {\"body\": \"b\"}]",
                {"records.json:2 (record 2): ", "no field \"text\"", "\"body\""}) == "");
  CHECK(missing("[1]", {"records.json:1 (record 1): ", "number", "object"}) == "");
  CHECK(missing("[{\"text\": }]", {"records.json:1 (record 1): ", "JSON", "byte 10"}) == "");
  CHECK(missing("{\n  \"text\": \"a\"\n}\n",
                {"records.json:1: ", "JSON", "byte 2 ", "one line", "element of an array"}) == "");
}

TEST_CASE("a key that appears twice in a record is refused with file, line and key") {
  const auto error = [](const std::string& json) {
    return test::error_of([&] { has_member(json, {"messages"}, "a.jsonl:7"); });
  };
  CHECK(error(R"({"text": "a", "text": "b"})") == "a.jsonl:7: has the key \"text\" twice");
  CHECK(error(R"({"x": [{"y": {"z": 1, "w": 2, "z": 3}}]})") == "a.jsonl:7: has the key \"z\" twice");
  CHECK(error(R"({"a": {"b": 1}, "b": {"a": 1}, "c": [{"b": 1}, {"b": 2}]})") == "");
  CHECK(error(R"({"te\u0078t": "a", "text": "b"})") == "a.jsonl:7: has the key \"text\" twice");
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "{\"a\": ";
  CHECK(error(deep) == "a.jsonl:7: nests more than 4096 objects");
}
