// Tensor copies against loops over single elements: every swizzle, every rank, a box across every border.

#include <cstring>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/box_copies.h"
#include "ptx_vm/tests/device_array.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

constexpr uint32_t kRank = TensorMap::kMaxRank;

// The device with tensor copies, regardless of PTX_VM_ARCH.
class OnSm90 {
 public:
  OnSm90()
      : scope_([] {
          Options now = options();
          now.arch = 90;
          return now;
        }()) {}

 private:
  ScopedOptions scope_;
};

struct Tensor {
  TensorMap map;
  std::vector<unsigned char> bytes;  // in global memory, with gaps between rows
};

// Up to 7 x 5 x 4 x 3 rows, boxes of 4 x 2 x 3 x 2 of them; rows as long as the swizzle allows.
Tensor tensor_of(uint32_t rank, Swizzle swizzle) {
  constexpr Element kElements[] = {Element::f32, Element::u8, Element::bf16, Element::u16};
  Tensor t;
  TensorMap& m = t.map;
  m.element = kElements[static_cast<int>(swizzle)];
  m.rank = rank;
  m.swizzle = swizzle;
  const uint32_t row = swizzle == Swizzle::none ? 48 : row_bytes(swizzle);
  constexpr uint32_t kExtent[] = {0, 7, 5, 4, 3}, kBox[] = {0, 4, 2, 3, 2};
  m.box[0] = row / bytes_of(m.element);
  m.extent[0] = m.box[0] + 8 / bytes_of(m.element);
  m.stride[0] = bytes_of(m.element);
  uint64_t bytes = (m.extent[0] * m.stride[0] + 31) / 16 * 16;
  for (uint32_t d = 1; d < rank; ++d) {
    m.extent[d] = kExtent[d];
    m.box[d] = kBox[d];
    m.stride[d] = bytes;
    bytes *= m.extent[d];
  }
  t.bytes.resize(bytes);
  for (size_t i = 0; i < t.bytes.size(); ++i) t.bytes[i] = static_cast<unsigned char>(i * 7 + i / 251);
  return t;
}

// Inside, across each border, across all of them, and outside.
std::vector<Coordinates> positions(const TensorMap& m) {
  Coordinates inside{}, low{}, high{}, outside{};
  for (uint32_t d = 0; d < m.rank; ++d) {
    const auto extent = static_cast<int32_t>(m.extent[d]), box = static_cast<int32_t>(m.box[d]);
    inside[d] = (extent - box) / 2;
    low[d] = -(box / 2);
    high[d] = extent - (box + 1) / 2;
    outside[d] = d == m.rank - 1 ? -box : 0;
  }
  std::vector<Coordinates> all{inside, low, high, outside};
  for (uint32_t d = 0; d < m.rank; ++d)
    for (const Coordinates& across : {low, high}) {
      all.push_back(inside);
      all.back()[d] = across[d];
    }
  return all;
}

uint32_t swizzled_by_hand(Swizzle s, uint32_t a) {
  switch (s) {
    case Swizzle::bytes_128:
      return a ^ ((a >> 7 & 7) << 4);
    case Swizzle::bytes_64:
      return a ^ ((a >> 7 & 3) << 4);
    case Swizzle::bytes_32:
      return a ^ ((a >> 7 & 1) << 4);
    default:
      return a;
  }
}

// body(offset in shared memory, offset in the tensor or -1 if outside) for every element of a box.
template <class Body>
void for_each_element(const TensorMap& m, const Coordinates& at, Body&& body) {
  uint32_t place = 0;
  for (uint32_t e = 0; e < m.rows(); ++e)
    for (uint32_t i0 = 0; i0 < m.box[0]; ++i0, place += bytes_of(m.element)) {
      const uint32_t index[kRank] = {i0, e % m.box[1], e / m.box[1] % m.box[2],
                                     e / m.box[1] / m.box[2] % m.box[3], e / m.box[1] / m.box[2] / m.box[3]};
      int64_t offset = 0;
      bool is_inside = true;
      for (uint32_t d = 0; d < m.rank; ++d) {
        const int64_t c = int64_t{at[d]} + index[d];
        is_inside &= c >= 0 && c < static_cast<int64_t>(m.extent[d]);
        offset += c * static_cast<int64_t>(m.stride[d]);
      }
      body(swizzled_by_hand(m.swizzle, place), is_inside ? offset : -1);
    }
}

template <class Body>
void for_each_case(Body&& body) {
  const OnSm90 device;
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::bytes_32, Swizzle::bytes_64, Swizzle::bytes_128})
    for (uint32_t rank = 1; rank <= kRank; ++rank) {
      Tensor t = tensor_of(rank, swizzle);
      for (const Coordinates& at : positions(t.map)) {
        CAPTURE(rank);
        CAPTURE(static_cast<int>(swizzle));
        CAPTURE(at[0]);
        CAPTURE(at[rank - 1]);
        body(t, at);
        for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
      }
    }
}

// The shared memory of a box: whole lines, as a swizzle fills them.
uint32_t lines(const TensorMap& m) { return (m.box_bytes() + 127) / 128 * 128; }

}  // namespace

TEST_CASE("a tensor load equals a loop over the box, with zeros outside and swizzled chunks") {
  for_each_case([](Tensor& t, const Coordinates& at) {
    const DeviceArray<unsigned char> memory(t.bytes);
    t.map.base = reinterpret_cast<uint64_t>(memory.data);
    std::vector<unsigned char> expected(lines(t.map), 0xff);
    const uint32_t bytes = bytes_of(t.map.element);
    for_each_element(t.map, at, [&](uint32_t place, int64_t offset) {
      std::memset(&expected[place], 0, bytes);
      if (offset >= 0) std::memcpy(&expected[place], &t.bytes[static_cast<size_t>(offset)], bytes);
    });
    CHECK(load_box(t.map, at, lines(t.map)) == expected);
  });
}

TEST_CASE("a tensor store writes what a loop over the box would, and nothing outside") {
  for_each_case([](Tensor& t, const Coordinates& at) {
    const DeviceArray<unsigned char> memory(t.bytes);
    t.map.base = reinterpret_cast<uint64_t>(memory.data);
    std::vector<unsigned char> shared(lines(t.map));
    for (size_t i = 0; i < shared.size(); ++i) shared[i] = static_cast<unsigned char>(i * 5 + 3);
    std::vector<unsigned char> expected = t.bytes;
    const uint32_t bytes = bytes_of(t.map.element);
    for_each_element(t.map, at, [&](uint32_t place, int64_t offset) {
      if (offset >= 0) std::memcpy(&expected[static_cast<size_t>(offset)], &shared[place], bytes);
    });
    store_box(t.map, at, shared, Store::copy);
    CHECK(memory.values() == expected);
  });
}

TEST_CASE("a tensor reduction adds to the existing values") {
  TensorMap m{.element = Element::f32, .rank = 2};
  m.extent = {6, 3, 1, 1, 1};
  m.stride = {4, 32};
  m.box = {4, 2, 1, 1, 1};
  const DeviceArray<float> memory(std::vector<float>(24, 1.5f));
  m.base = reinterpret_cast<uint64_t>(memory.data);
  std::vector<float> box{1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<unsigned char> shared(32);
  std::memcpy(shared.data(), box.data(), 32);
  Options adds = options();
  adds.arch = 90;
  const ScopedOptions scope(adds);
  store_box(m, {4, 2}, shared, Store::add);  // of 4 x 2 elements 2 x 1 lie within
  std::vector<float> expected(24, 1.5f);
  expected[20] = 2.5f, expected[21] = 3.5f;
  CHECK(memory.values() == expected);
  for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
}

TEST_CASE("the tensor map encoder names the rule that a map violates") {
  const DeviceArray<unsigned char> memory(4096);
  Tensor t = tensor_of(3, Swizzle::bytes_64);
  t.map.base = reinterpret_cast<uint64_t>(memory.data);
  CHECK(encode_error(t.map) == "");
  const auto broken = [&](auto&& change) {
    TensorMap m = t.map;
    change(m);
    return encode_error(m);
  };
  CHECK(broken([](TensorMap& m) { m.rank = 6; }) == "rank 6 is not 1 to 5");
  CHECK(broken([](TensorMap& m) { m.base += 8; }) == "the tensor's address is not a multiple of 16");
  CHECK(broken([](TensorMap& m) { m.extent[1] = 0; }) == "dimension 1 has 0 elements, not 1 to 2^32");
  CHECK(broken([](TensorMap& m) { m.box[2] = 257; }) ==
        "the box has 257 elements in dimension 2, not 1 to 256");
  CHECK(broken([](TensorMap& m) { m.stride[1] += 8; }).find("not a multiple of 16 below 2^40") !=
        std::string::npos);
  CHECK(broken([](TensorMap& m) { m.box[0] = 4; }) == "a row of the box has 8 bytes, not a multiple of 16");
  CHECK(broken([](TensorMap& m) { m.box[0] = 64; }) ==
        "a row of the box has 128 bytes, more than the swizzle's 64");
}

TEST_CASE("a tensor map survives packing into 128 bytes") {
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::bytes_128})
    for (uint32_t rank = 1; rank <= kRank; ++rank) {
      TensorMap m = tensor_of(rank, swizzle).map;
      m.base = 0x123456789a0;
      m.box[0] = 256;
      m.extent[0] = uint64_t{1} << 32;
      unsigned char packed[TensorMap::kPackedBytes];
      pack(m, packed);
      CHECK(unpack_tensor_map(packed) == m);
    }
}

TEST_CASE("a tensor map of the wrong rank, or a missing one, is a finding at the copy") {
  const OnSm90 device;
  const DeviceArray<unsigned char> memory(4096);
  Tensor t = tensor_of(2, Swizzle::none);
  t.map.base = reinterpret_cast<uint64_t>(memory.data);
  load_with_wrong_rank(t.map);
  std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  CHECK(found[0].text.find("the tensor map has rank 2, the instruction 3") != std::string::npos);
  CHECK(found[0].where.find("box_copies.cu:") != std::string::npos);
  load_without_map();
  found = take_findings();
  REQUIRE(found.size() == 1);
  CHECK(found[0].text.find("there is no tensor map at byte 128 of the kernel's") != std::string::npos);
}
