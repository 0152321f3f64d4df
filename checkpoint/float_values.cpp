#include "checkpoint/float_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr int64_t kPiece = int64_t{1} << 15;  // elements

// Calls visit(first element, values) for each piece of a range.
template <class T, class Visit>
void each_piece(const SafetensorsEntry& entry, int64_t first, int64_t count, Visit&& visit) {
  std::vector<T> values(static_cast<size_t>(std::min(kPiece, count)));
  for (const int64_t end = first + count; first < end; first += kPiece) {
    const int64_t n = std::min(kPiece, end - first);
    entry.bytes.read(first * int64_t{sizeof(T)}, n * int64_t{sizeof(T)}, values.data());
    visit(first, std::span<const T>(values).first(static_cast<size_t>(n)));
  }
}

DType dtype_of_floats(const SafetensorsEntry& entry) {
  const std::optional<DType> dtype = float_dtype(entry);
  check(dtype.has_value(), "\"", entry.name, "\" is ", entry.dtype, ", must be F32, BF16 or F16");
  return *dtype;
}

void check_range(const SafetensorsEntry& entry, int64_t first, int64_t count) {
  const int64_t all = element_count(entry);
  check(first >= 0 && count >= 0 && first <= all && count <= all - first, "\"", entry.name, "\": ", count,
        " elements from ", first, " exceed its ", all);
}

// Rounds values, which are elements [first, ...) of a tensor, to another dtype.
template <class To, class From>
void convert(const std::string& name, int64_t first, std::span<const From> values, std::byte* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = static_cast<float>(values[i]);
    const To rounded(value);
    check(std::isfinite(static_cast<float>(rounded)) || !std::isfinite(value), "\"", name, "\": element ",
          first + static_cast<int64_t>(i), " is ", value, ", which overflows to infinity in ", dtype_of<To>,
          ": choose another dtype");
    std::memcpy(to + i * sizeof(To), &rounded, sizeof(To));
  }
}

}  // namespace

std::optional<DType> float_dtype(const SafetensorsEntry& entry) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (entry.dtype == safetensors_name(dtype)) return dtype;
  return {};
}

int64_t element_count(const SafetensorsEntry& entry) {
  uint64_t elements = 1;  // unsigned as in the reader's overflow check
  for (const int64_t extent : entry.shape) elements *= static_cast<uint64_t>(extent);
  return static_cast<int64_t>(elements);
}

// The loop has no branch, so that it vectorizes: every saved weight passes through it.
std::optional<int64_t> first_non_finite(std::span<const float> values) {
  int non_finite = 0;
  for (const float value : values) non_finite |= !(std::abs(value) <= std::numeric_limits<float>::max());
  if (!non_finite) return {};
  const auto found =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return found - values.begin();
}

void read_floats(const SafetensorsEntry& entry, int64_t first, int64_t count, float* values) {
  const DType dtype = dtype_of_floats(entry);
  check_range(entry, first, count);
  if (dtype == DType::f32) return entry.bytes.read(first * 4, count * 4, values);
  visit_float(dtype, [&]<class T>() {
    each_piece<T>(entry, first, count, [&](int64_t at, std::span<const T> piece) {
      std::transform(piece.begin(), piece.end(), values + (at - first),
                     [](T value) { return static_cast<float>(value); });
    });
  });
}

void read_as(const SafetensorsEntry& entry, int64_t first, int64_t count, DType dtype,
             std::vector<std::byte>& bytes) {
  const DType own = dtype_of_floats(entry);
  check_range(entry, first, count);
  bytes.resize(static_cast<size_t>(count * size_of(dtype)));
  if (own == dtype) return entry.bytes.read(first * size_of(own), std::ssize(bytes), bytes.data());
  visit_float(own, [&]<class From>() {
    visit_float(dtype, [&]<class To>() {
      each_piece<From>(entry, first, count, [&](int64_t at, std::span<const From> piece) {
        convert<To>(entry.name, at, piece, bytes.data() + (at - first) * int64_t{sizeof(To)});
      });
    });
  });
}

void convert_floats(std::span<const float> values, const std::string& name, int64_t first, DType dtype,
                    std::vector<std::byte>& bytes) {
  bytes.resize(values.size() * static_cast<size_t>(size_of(dtype)));
  visit_float(dtype, [&]<class To>() { convert<To>(name, first, values, bytes.data()); });
}

}  // namespace flatshard
