#include "checkpoint/float_values.h"

#include <cmath>
#include <cstring>

#include "runtime/check.h"

namespace flatshard {
namespace {

// The value and its dtype as the range of a tensor is gone through.
template <class T>
T value_at(const std::byte* bytes, int64_t index) {
  T value;
  std::memcpy(static_cast<void*>(&value), bytes + index * int64_t{sizeof(T)}, sizeof(T));
  return value;
}

const std::byte* begin_of(const SafetensorsEntry& entry, int64_t first, int64_t count, DType dtype) {
  const int64_t all = element_count(entry);
  check(first >= 0 && count >= 0 && first <= all && count <= all - first, "\"", entry.name, "\": ", count,
        " elements from ", first, " of ", all);
  return entry.bytes.data() + first * size_of(dtype);
}

DType dtype_of_floats(const SafetensorsEntry& entry) {
  const std::optional<DType> dtype = float_dtype(entry);
  check(dtype.has_value(), "\"", entry.name, "\" is ", entry.dtype, ", must be F32, BF16 or F16");
  return *dtype;
}

}  // namespace

std::optional<DType> float_dtype(const SafetensorsEntry& entry) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (entry.dtype == safetensors_name(dtype)) return dtype;
  return {};
}

int64_t element_count(const SafetensorsEntry& entry) {
  uint64_t elements = 1;  // unsigned, for that is how the reader has checked the product
  for (const int64_t extent : entry.shape) elements *= static_cast<uint64_t>(extent);
  return static_cast<int64_t>(elements);
}

void read_floats(const SafetensorsEntry& entry, int64_t first, int64_t count, std::vector<float>& values) {
  const DType dtype = dtype_of_floats(entry);
  const std::byte* const from = begin_of(entry, first, count, dtype);
  values.resize(static_cast<size_t>(count));
  visit_float(dtype, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i)
      values[static_cast<size_t>(i)] = static_cast<float>(value_at<T>(from, i));
  });
}

void read_as(const SafetensorsEntry& entry, int64_t first, int64_t count, DType dtype,
             std::vector<std::byte>& bytes) {
  const DType own = dtype_of_floats(entry);
  const std::byte* const from = begin_of(entry, first, count, own);
  bytes.resize(static_cast<size_t>(count * size_of(dtype)));
  if (own == dtype) {
    if (count > 0) std::memcpy(bytes.data(), from, bytes.size());
    return;
  }
  const auto convert = [&]<class From, class To>(From, To) {
    for (int64_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(value_at<From>(from, i));
      const To rounded(value);
      check(std::isfinite(static_cast<float>(rounded)) || !std::isfinite(value), "\"", entry.name,
            "\": element ", first + i, " is ", value, ", which is infinite in ", dtype,
            ": choose another dtype");
      std::memcpy(bytes.data() + i * int64_t{sizeof(To)}, &rounded, sizeof(To));
    }
  };
  visit_float(own, [&]<class From>() { visit_float(dtype, [&]<class To>() { convert(From{}, To{}); }); });
}

}  // namespace flatshard
