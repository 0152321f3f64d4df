#pragma once
// Tables whose rows are records: Parquet files, and Arrow IPC files and streams. Apache Arrow reads them in
// table_arrow.cpp; table_missing.cpp refuses them if a build lacks it. Only a few rows of a Parquet file, or
// one record batch of an Arrow file, are in memory at a time.
//
// A row is a JSON object of its columns. Lists are arrays, structs and maps with text keys are objects,
// dates, times and decimals are texts as printed by Arrow, NaN is null. Images, which are structs of bytes
// and path, have their bytes as base64. Other columns of bytes are an Error, unless only other columns are
// selected.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace flatshard {

enum class TableKind { none, parquet, arrow_file, arrow_stream };
// Tests the content of the file, whatever its name. A pipe is none: its bytes can be read only once.
TableKind table_kind_of(const std::string& path);

class TableInput {
 public:
  virtual ~TableInput() = default;
  // Writes the next row to `json`. Returns false at the end.
  virtual bool next(std::string& json) = 0;
  // The approximate number of bytes read from the file.
  virtual int64_t file_bytes() const = 0;
};

// Selects these columns, or all if there are none. An Error names the columns of the table.
std::unique_ptr<TableInput> open_table(const std::string& path, const std::vector<std::string>& columns);

// A command that writes the table as JSON lines: "convert it: python3 -c ...".
std::string conversion_of_table(const std::string& path, TableKind kind);

}  // namespace flatshard
