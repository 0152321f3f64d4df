#pragma once
// Reads the values of float tensors (F32, BF16 and F16) from files, in small constant memory.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "runtime/dtype.h"

namespace flatshard {

// Elements per block, for callers that process a tensor block by block.
inline constexpr int64_t kValueBlock = int64_t{1} << 20;

// The dtype of a float tensor; nullopt for other tensors.
std::optional<DType> float_dtype(const SafetensorsEntry& entry);
int64_t element_count(const SafetensorsEntry& entry);

// The index of the first value that is NaN or infinite; nullopt if all are finite.
std::optional<int64_t> first_non_finite(std::span<const float> values);

// Reads elements [first, first + count) of a float tensor as fp32.
void read_floats(const SafetensorsEntry& entry, int64_t first, int64_t count, float* values);

// Reads elements converted to a float dtype, rounded to nearest even; for the tensor's own dtype the bytes
// are unchanged. Throws an Error that names the tensor and the first finite value that would overflow to
// infinity.
void read_as(const SafetensorsEntry& entry, int64_t first, int64_t count, DType dtype,
             std::vector<std::byte>& bytes);

// Converts fp32 values, which are elements [first, ...) of a tensor of this name, in the same way.
void convert_floats(std::span<const float> values, const std::string& name, int64_t first, DType dtype,
                    std::vector<std::byte>& bytes);

}  // namespace flatshard
