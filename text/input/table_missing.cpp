#include "runtime/check.h"
#include "text/input/table_input.h"

namespace flatshard {

std::unique_ptr<TableInput> open_table(const std::string& path, const std::vector<std::string>&) {
  const TableKind kind = table_kind_of(path);
  fail(str(path, ": is ", kind == TableKind::parquet ? "Parquet" : "an Arrow table",
           ", which this build cannot read: install Apache Arrow (run .ci/fetch_arrow in the source tree, or "
           "install libarrow-dev and libparquet-dev), then configure and build again; or ",
           conversion_of_table(path, kind)));
}

}  // namespace flatshard
