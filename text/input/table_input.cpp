#include "text/input/table_input.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "runtime/check.h"

namespace flatshard {
namespace {

// An encrypted Parquet file begins and ends with these bytes. A text may begin with them, too.
constexpr std::string_view kEncrypted = "PARE";

bool ends_encrypted(std::ifstream& file) {
  std::array<char, kEncrypted.size()> end{};
  file.clear();
  file.seekg(-std::ssize(kEncrypted), std::ios::end);
  file.read(end.data(), end.size());
  return std::string_view(end.data(), end.size()) == kEncrypted;
}

TableKind kind_of(std::string_view begin) {
  if (begin.starts_with("PAR1")) return TableKind::parquet;
  if (begin.starts_with("ARROW1")) return TableKind::arrow_file;
  return begin.starts_with("\xff\xff\xff\xff") ? TableKind::arrow_stream : TableKind::none;
}

}  // namespace

TableKind table_kind_of(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return TableKind::none;
  std::array<char, 8> begin{};
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), begin.size());
  const std::string_view text(begin.data(), static_cast<size_t>(file.gcount()));
  if (text.starts_with(kEncrypted) && ends_encrypted(file)) return TableKind::parquet;
  return kind_of(text);
}

std::string conversion_of_table(const std::string& path, TableKind kind) {
  const char* const read = kind == TableKind::parquet      ? "parquet.read_table('"
                           : kind == TableKind::arrow_file ? "feather.read_table('"
                                                           : "ipc.open_stream('";
  const char* const all = kind == TableKind::arrow_stream ? "').read_all()" : "')";
  return str("convert it: python3 -c \"import json; from pyarrow import feather, ipc, parquet; ",
             "[print(json.dumps(row, default=str)) for row in ", read, path, all, ".to_pylist()]\" >'", path,
             ".jsonl'");
}

}  // namespace flatshard
