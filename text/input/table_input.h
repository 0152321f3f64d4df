#pragma once
// Tables whose rows are records: Parquet files, and Arrow IPC files and streams. Apache Arrow reads them in
// table_arrow.cpp; table_missing.cpp refuses them where a build lacks it. Memory is bounded: a few rows of a
// Parquet file, or one record batch of an Arrow file, are in memory at a time.
//
// A row is a JSON object of its columns. Lists are arrays, structs and maps with text keys are objects,
// dates, times and decimals are texts as Arrow prints them, NaN is null. Images, which are structs of bytes
// and path, have their bytes as base64. Other columns of bytes have no such form, and are an Error unless
// other columns are chosen.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace flatshard {

enum class TableKind { none, parquet, arrow_file, arrow_stream };
// By the content of the file, whatever its name. A pipe is none: its bytes can be read only once.
TableKind table_kind_of(const std::string& path);

class TableInput {
 public:
  virtual ~TableInput() = default;
  // Writes the next row to `json`; false at the end.
  virtual bool next(std::string& json) = 0;
  // About how much of the file has been read.
  virtual int64_t file_bytes() const = 0;
};

// Reads these columns, or all. An Error names the columns that the table has.
std::unique_ptr<TableInput> open_table(const std::string& path, const std::vector<std::string>& columns);

// "convert it: python3 -c ...", a command that writes the table as JSON lines.
std::string conversion_of_table(const std::string& path, TableKind kind);

}  // namespace flatshard
