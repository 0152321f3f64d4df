#include "hub/quantized/read_values.h"

#include <algorithm>
#include <vector>

#include "checkpoint/float_values.h"

namespace flatshard {

void read_transposed(const ReadMatrix& read, int64_t rows, int64_t columns, int64_t first, int64_t count,
                     float* to) {
  const int64_t step = std::clamp<int64_t>(kValueBlock / columns, 1, rows);
  const int64_t begin = first / rows, end = (first + count + rows - 1) / rows;  // range of columns to read
  std::vector<float> values(static_cast<size_t>(step * columns));
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t read_rows = std::min(step, rows - row);
    read(row * columns, read_rows * columns, values.data());
    for (int64_t c = begin; c < end; ++c)
      for (int64_t r = 0; r < read_rows; ++r)
        if (const int64_t at = c * rows + row + r - first; at >= 0 && at < count)
          to[at] = values[static_cast<size_t>(r * columns + c)];
  }
}

}  // namespace flatshard
