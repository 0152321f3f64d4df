#pragma once
// Functions that read the values of weights by range.

#include <cstdint>
#include <functional>
#include <string>

namespace flatshard {

// Reads elements [first, first + count) of a tensor as fp32.
using ReadValues = std::function<void(const std::string& name, int64_t first, int64_t count, float* to)>;

// Reads elements [first, first + count) of a matrix as fp32.
using ReadMatrix = std::function<void(int64_t first, int64_t count, float* to)>;

// Reads elements [first, first + count) of the transpose of a matrix. `read` reads the matrix, which is
// row-major with `rows` rows and `columns` columns. Allocates memory for one row or kValueBlock elements
// (float_values.h).
void read_transposed(const ReadMatrix& read, int64_t rows, int64_t columns, int64_t first, int64_t count,
                     float* to);

}  // namespace flatshard
