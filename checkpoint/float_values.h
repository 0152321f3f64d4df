#pragma once
// The values of float tensors in files, block by block: F32, BF16 and F16, read with no more memory than a
// small piece.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "runtime/dtype.h"

namespace flatshard {

// Elements of a tensor that are looked at at once.
inline constexpr int64_t kValueBlock = int64_t{1} << 20;

// Nothing where the tensor holds something else than floats of these widths.
std::optional<DType> float_dtype(const SafetensorsEntry& entry);
int64_t element_count(const SafetensorsEntry& entry);

// The index of the first that is NaN or infinite; nothing where all are finite.
std::optional<int64_t> first_non_finite(std::span<const float> values);

// Elements [first, first + count) of a float tensor as fp32.
void read_floats(const SafetensorsEntry& entry, int64_t first, int64_t count, float* values);

// The same elements as bytes of another float dtype, rounded to nearest even; of its own dtype they are the
// very bytes. An Error names the tensor and the first value that is finite and would not be any more.
void read_as(const SafetensorsEntry& entry, int64_t first, int64_t count, DType dtype,
             std::vector<std::byte>& bytes);

}  // namespace flatshard
