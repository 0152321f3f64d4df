#include "text/input/table_input.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/json.h"
#include "runtime/text.h"
#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/fuzz/dice.h"
#include "tests/test.h"
#include "text/data/corpus.h"
#include "text/input/text_input.h"
#include "tools/programs.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

const fs::path kTables = fs::path(kSourceDir) / "tests" / "golden" / "tables";
std::string table(const std::string& name) { return (kTables / name).string(); }

Texts rows_of(const std::string& path, const Texts& columns = {}) {
  Texts rows;
  const auto input = open_table(path, columns);
  for (std::string row; input->next(row);) rows.push_back(row);
  return rows;
}

std::string error_of(const std::string& path, const Texts& columns = {}) {
  return test::error_of([&] { rows_of(path, columns); });
}

Texts lines_of(const std::string& path) {
  Texts lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// A build without Arrow says what to install and how to convert; then the test is skipped.
bool lacks_arrow() {
  const std::string error = test::error_of([] { open_table(table("chats.parquet"), {}); });
  if (error.empty()) return false;
  CHECK(test::missing_from(error, {"chats.parquet: is Parquet", "cannot read", ".ci/fetch_arrow",
                                   "libparquet-dev", "python3 -c", "chats.parquet.jsonl"}) == "");
  test::skip("this build reads no tables");
  return true;
}

// tests/golden/tables.py writes more of them to any folder.
fs::path folder_of_tables() {
  const char* const other = std::getenv("FLATSHARD_TABLES");
  return other ? fs::path(other) : kTables;
}

std::string run(const Texts& arguments, int expected = 0) {
  std::istringstream in;
  std::ostringstream out, err;
  CHECK(run_prepare(arguments, {in, out, err}) == expected);
  return out.str() + err.str();
}

}  // namespace

TEST_CASE("tables of pyarrow have the rows that pyarrow reads, or are refused for what they hold") {
  if (lacks_arrow()) return;
  int equal = 0, refused = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of_tables())) {
    fs::path path = entry.path();
    if (path.extension() == ".jsonl" || path.extension() == ".refused") continue;
    CAPTURE(path.string());
    REQUIRE(table_kind_of(path.string()) != TableKind::none);
    if (const fs::path why = fs::path(path).replace_extension(".refused"); fs::exists(why)) {
      CHECK(error_of(path.string()).find(test::read_file(why.string())) != std::string::npos);
      ++refused;
      continue;
    }
    const Texts rows = rows_of(path.string()),
                lines = lines_of(fs::path(path).replace_extension(".jsonl").string());
    REQUIRE(rows.size() == lines.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const json row = json::parse(rows[i]), line = json::parse(lines[i]);
      if (row != line) FAIL_CHECK("row ", i + 1, " is ", rows[i], ", must be ", lines[i]);
    }
    ++equal;
  }
  MESSAGE(counted(equal, "table"), " with equal rows, ", refused, " refused");
  CHECK(equal >= 4);
  CHECK(refused >= 2);
}

TEST_CASE("a row that becomes too long is refused before it is, although its file is small") {
  if (lacks_arrow()) return;
  int tables = 0;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(kTables.parent_path() / "unfolding_tables")) {
    CAPTURE(entry.path().string());
    REQUIRE(entry.file_size() < 2000);
    const auto input = open_table(entry.path().string(), {});
    std::string row;
    CHECK(test::missing_from(test::error_of([&] { input->next(row); }),
                             {entry.path().filename().string(), "(row 1): has more than", "256.0 MiB",
                              "as JSON, must be shorter"}) == "");
    CHECK(std::ssize(row) <= kMostJsonBytes);
    ++tables;
  }
  CHECK(tables == 4);
}

TEST_CASE("a table is known by its first bytes, and a file that only has its name is refused") {
  for (const auto& [name, kind] :
       std::vector<std::pair<std::string, TableKind>>{{"chats.parquet", TableKind::parquet},
                                                      {"encrypted.parquet", TableKind::parquet},
                                                      {"file.arrow", TableKind::arrow_file},
                                                      {"stream.arrow", TableKind::arrow_stream},
                                                      {"chats.jsonl", TableKind::none}}) {
    fs::copy_file(table(name), "some.data", fs::copy_options::overwrite_existing);
    CHECK(table_kind_of("some.data") == kind);
  }
  std::ofstream("some.data") << "PAREIL";
  CHECK(table_kind_of("some.data") == TableKind::none);
  CHECK(table_kind_of("no such file") == TableKind::none);
  CHECK(table_kind_of(".") == TableKind::none);
  std::ofstream("named.parquet") << "{\"text\": \"a\"}\n";
  CHECK(table_kind_of("named.parquet") == TableKind::none);
  CHECK(test::missing_from(test::error_of([] { check_records("named.parquet", {}); }),
                           {"named.parquet: is named like a table", "content is none"}) == "");
}

TEST_CASE("chosen columns are the members of the rows, and a wrong name is refused with those there are") {
  if (lacks_arrow()) return;
  CHECK(rows_of(table("sounds.parquet"), {"caption"}) == Texts{R"({"caption":"A cat."})"});
  CHECK(test::missing_from(error_of(table("sounds.parquet")),
                           {"\"sound\"", "bytes without", "data.columns", "\"caption\""}) == "");
  for (const char* name : {"chats.parquet", "stream.arrow"}) {
    const Texts rows = rows_of(table(name), {"score", "source"});  // in the order of the table
    REQUIRE(rows.size() == 10);
    CHECK(rows[0] == R"({"source":"web","score":0.0})");
    CHECK(rows[9] == R"({"source":null,"score":null})");
    CHECK(test::missing_from(error_of(table(name), {"mesages"}),
                             {name, ": has no column \"mesages\"", "\"messages\" (list<", "\"source\" (",
                              "\"score\" (float)"}) == "");
  }
  CHECK(rows_of(table("file.arrow"), {"most"})[0] == R"({"most":18446744073709551615})");
}

TEST_CASE("prepare makes the same tokens of a table and of its rows as JSON lines") {
  if (lacks_arrow()) return;
  const Texts common{"--train-tokenizer", "300",    "--tokenizer",  "tokenizer",
                     "--chat-template",   "chatml", "--max-tokens", "0"};
  std::string of_lines;
  for (const char* name : {"chats.jsonl", "chats.parquet", "stream.arrow"}) {
    fs::remove_all("tokenizer");
    Texts arguments = common;
    arguments.insert(arguments.end(), {"--out", "of.tok", "--skip-bad"});
    if (!of_lines.empty()) arguments.insert(arguments.end(), {"--columns", "messages,score"});
    arguments.push_back(table(name));
    CHECK(run(arguments).find("9 documents; dropped 0 empty, 1 bad") != std::string::npos);
    // Between the header and the manifest, which names the file.
    std::string tokens = test::read_file("of.tok");
    tokens = tokens.substr(48, tokens.find("{\"tokenizer\"") - 48);
    if (of_lines.empty()) of_lines = tokens;
    CHECK(tokens.size() > 100);
    CHECK(tokens == of_lines);
  }
}

TEST_CASE("an error of a row names its file and its number") {
  if (lacks_arrow()) return;
  const std::string error = test::error_of([] {
    read_records(table("values.parquet"), TextSplit::none,
                 [](const Record& record) { text_field(record.text, "text", record.where); });
  });
  CHECK(test::missing_from(error, {"values.parquet (row 3): ", "\"text\"", "null", "string"}) == "");
}

TEST_CASE("tables that are cut off are refused, and damaged ones are refused or read, without a crash") {
  if (lacks_arrow()) return;
  test::Dice dice(1, "damaged tables", 0);
  int refused = 0, read = 0;
  for (const char* name : {"chats.parquet", "values.parquet", "file.arrow", "stream.arrow"}) {
    const std::string whole = test::read_file(table(name));
    const auto error_with = [](const std::string& bytes) {
      std::ofstream("damaged.table", std::ios::binary) << bytes;
      return error_of("damaged.table");
    };
    CAPTURE(name);
    for (size_t size = 8; size < whole.size(); size += 7) {
      CAPTURE(size);
      CHECK(error_with(whole.substr(0, size)).starts_with("damaged.table"));
    }
    for (int i = 0; i < 500; ++i) {
      std::string damaged = whole;
      for (size_t n = 1 + dice.below(3); n > 0; --n)
        damaged[8 + dice.below(damaged.size() - 8)] = static_cast<char>(dice.below(256));
      const std::string error = error_with(damaged);
      CHECK((error.empty() || error.starts_with("damaged.table")));
      CHECK(error.find('\n') == std::string::npos);
      ++(error.empty() ? read : refused);
    }
  }
  MESSAGE(refused, " refused, ", read, " read");
  CHECK(refused > 500);
}
