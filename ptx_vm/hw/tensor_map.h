#pragma once
// Tensor maps for tensor copies: the content of the driver's 128 bytes, and the layout of a box of the tensor
// in shared memory. Dimension 0 is innermost. Coordinates may be outside the tensor: such elements read as
// zero and are never written, but count towards the bytes of the copy.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "ptx_vm/hw/swizzle.h"

namespace flatshard::ptx_vm {

enum class Element : uint8_t { u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16 };
constexpr uint32_t bytes_of(Element e) {
  constexpr uint32_t kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[static_cast<uint32_t>(e)];
}

constexpr bool is_float(Element e) { return e >= Element::f16; }

struct TensorMap {
  static constexpr uint32_t kMaxRank = 5, kMaxBox = 256, kPackedBytes = 128;
  Element element = Element::u8;
  uint32_t rank = 1;
  uint64_t base = 0;
  std::array<uint64_t, kMaxRank> extent{1, 1, 1, 1, 1};
  std::array<uint64_t, kMaxRank> stride{};  // bytes; of dimension 0 the element's
  std::array<uint32_t, kMaxRank> box{1, 1, 1, 1, 1};
  Swizzle swizzle = Swizzle::none;

  bool operator==(const TensorMap&) const = default;
  uint32_t row_bytes() const { return box[0] * bytes_of(element); }  // of the box
  uint32_t rows() const { return box[1] * box[2] * box[3] * box[4]; }
  uint32_t box_bytes() const { return row_bytes() * rows(); }
};

// The rule that the map violates, or nothing.
std::string broken_rule(const TensorMap& map);

void pack(const TensorMap& map, unsigned char (&to)[TensorMap::kPackedBytes]);
// Nothing if the bytes are not a map.
std::optional<TensorMap> unpack_tensor_map(const unsigned char* from);

using Coordinates = std::array<int32_t, TensorMap::kMaxRank>;
// The part of one row of a box that is inside the tensor.
struct BoxRow {
  uint32_t in_box;  // offset of its first byte from the box's begin, before the swizzle
  uint64_t address;
  uint32_t bytes;  // 0: nothing
};
BoxRow row_of(const TensorMap& map, const Coordinates& at, uint32_t row);

}  // namespace flatshard::ptx_vm
