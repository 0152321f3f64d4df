#include "ptx_vm/hw/tensor_map.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint64_t kMagic = 0x70616d20726f7365;
constexpr uint64_t kStrideUnit = 16, kMaxStride = uint64_t{1} << 40, kMaxExtent = uint64_t{1} << 32;

// The content of the 128 bytes: a box has at most 256 elements, so its size minus one is stored.
struct Packed {
  uint64_t magic, base;
  uint64_t stride[TensorMap::kMaxRank - 1];
  uint32_t extent[TensorMap::kMaxRank];
  uint8_t box[TensorMap::kMaxRank];
  uint8_t element, rank, swizzle;
};
static_assert(sizeof(Packed) <= TensorMap::kPackedBytes && std::is_trivially_copyable_v<Packed>);

}  // namespace

std::string broken_rule(const TensorMap& map) {
  if (map.rank < 1 || map.rank > TensorMap::kMaxRank) return str("rank ", map.rank, " is not 1 to 5");
  if (map.base == 0 || map.base % 16) return "the tensor's address is not a multiple of 16";
  for (uint32_t d = 0; d < map.rank; ++d) {
    if (map.extent[d] == 0 || map.extent[d] > kMaxExtent)
      return str("dimension ", d, " has ", map.extent[d], " elements, not 1 to 2^32");
    if (map.box[d] == 0 || map.box[d] > TensorMap::kMaxBox)
      return str("the box has ", map.box[d], " elements in dimension ", d, ", not 1 to 256");
    if (d > 0 && (map.stride[d] % kStrideUnit || map.stride[d] >= kMaxStride))
      return str("the stride of dimension ", d, " is ", map.stride[d],
                 " bytes, not a multiple of 16 below 2^40");
  }
  if (map.row_bytes() % 16)
    return str("a row of the box has ", map.row_bytes(), " bytes, not a multiple of 16");
  if (map.swizzle != Swizzle::none && map.row_bytes() > row_bytes(map.swizzle))
    return str("a row of the box has ", map.row_bytes(), " bytes, more than the swizzle's ",
               row_bytes(map.swizzle));
  return "";
}

void pack(const TensorMap& map, unsigned char (&to)[TensorMap::kPackedBytes]) {
  Packed p{};
  p.magic = kMagic;
  p.base = map.base;
  for (uint32_t d = 0; d < TensorMap::kMaxRank; ++d) {
    if (d > 0) p.stride[d - 1] = map.stride[d];
    p.extent[d] = static_cast<uint32_t>(map.extent[d] - 1);
    p.box[d] = static_cast<uint8_t>(map.box[d] - 1);
  }
  p.element = static_cast<uint8_t>(map.element);
  p.rank = static_cast<uint8_t>(map.rank);
  p.swizzle = static_cast<uint8_t>(map.swizzle);
  std::memset(to, 0, sizeof(to));
  std::memcpy(to, &p, sizeof(p));
}

std::optional<TensorMap> unpack_tensor_map(const unsigned char* from) {
  Packed p;
  std::memcpy(&p, from, sizeof(p));
  if (p.magic != kMagic) return {};
  TensorMap map{.element = static_cast<Element>(p.element), .rank = p.rank, .base = p.base};
  map.swizzle = static_cast<Swizzle>(p.swizzle);
  map.stride[0] = bytes_of(map.element);
  for (uint32_t d = 0; d < TensorMap::kMaxRank; ++d) {
    if (d > 0) map.stride[d] = p.stride[d - 1];
    map.extent[d] = uint64_t{p.extent[d]} + 1;
    map.box[d] = uint32_t{p.box[d]} + 1;
  }
  return map;
}

BoxRow row_of(const TensorMap& map, const Coordinates& at, uint32_t row) {
  const auto bytes = static_cast<int64_t>(bytes_of(map.element));
  const auto inner = static_cast<int64_t>(map.extent[0]);
  const int64_t begin = std::clamp<int64_t>(at[0], 0, inner);
  const int64_t end = std::clamp<int64_t>(int64_t{at[0]} + map.box[0], 0, inner);
  BoxRow result{row * map.row_bytes(), map.base, 0};
  if (begin >= end) return result;
  uint32_t rest = row;
  for (uint32_t d = 1; d < map.rank; ++d) {
    const int64_t index = int64_t{at[d]} + rest % map.box[d];
    rest /= map.box[d];
    if (index < 0 || index >= static_cast<int64_t>(map.extent[d])) return result;
    result.address += static_cast<uint64_t>(index) * map.stride[d];
  }
  result.in_box += static_cast<uint32_t>((begin - at[0]) * bytes);
  result.address += static_cast<uint64_t>(begin * bytes);
  result.bytes = static_cast<uint32_t>((end - begin) * bytes);
  return result;
}

}  // namespace flatshard::ptx_vm
