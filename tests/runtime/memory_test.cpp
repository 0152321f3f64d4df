#include "runtime/memory.h"

#include <cmath>
#include <cstring>

#include "runtime/arena.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("an arena allocates exactly what it planned, at the same offsets") {
  Arena arena("activations", Device::cpu());
  const auto step = [&] {
    const Tensor a = arena.alloc(DType::bf16, {3, 5});
    const ArenaScope scope(arena);
    const Tensor b = arena.alloc(DType::f32, {100});
    const Tensor c = arena.alloc(DType::u8, {1});
    return std::array{a.data, b.data, c.data};
  };
  CHECK(step()[0] == nullptr);
  CHECK(arena.planning());
  const int64_t planned = arena.peak();
  CHECK(planned == 256 + 512 + 256);
  CHECK(arena.used() == 256);

  arena.commit();
  const MemoryCounters before = memory_counters();
  const auto first = step();
  arena.rewind(0);
  CHECK(step() == first);
  CHECK(arena.peak() == planned);
  CHECK(memory_counters().allocations == before.allocations);
  for (const void* data : first) CHECK(reinterpret_cast<uintptr_t>(data) % Arena::kAlignment == 0);
}

TEST_CASE("an arena refuses more than it planned and names the sizes") {
  Arena arena("scratch", Device::cpu());
  arena.alloc(DType::f32, {64});
  arena.commit();
  CHECK(test::error_of([&] { arena.alloc(DType::f32, {65}); }) ==
        "arena scratch: a tensor (65) of f32 at byte 0 ends at byte 512, beyond the planned 256 bytes");
  CHECK(arena.used() == 0);
  CHECK(test::error_of([&] { arena.commit(); }) == "arena scratch is already committed");
  CHECK(test::error_of([&] { arena.rewind(1); }) ==
        "arena scratch: rewind to byte 1, but only 0 bytes are in use");
}

TEST_CASE("an arena refuses a tensor whose bytes overflow") {
  Arena arena("plan", Device::cpu());
  CHECK(test::error_of([&] { arena.alloc(DType::f32, {int64_t{1} << 61}); }) ==
        "arena plan: a tensor (2305843009213693952) of f32 is larger than 2^63 bytes");
}

TEST_CASE("a poisoned arena hands out NaN, a misaligned one shifts every tensor") {
  Arena arena("scratch", Device::cpu());
  arena.alloc(DType::f32, {4});
  arena.commit({.misalign = 4, .poison = true});
  const Tensor t = arena.alloc(DType::f32, {4});
  CHECK(std::isnan(t.as<float>()[3]));
  CHECK(reinterpret_cast<uintptr_t>(t.data) % Arena::kAlignment == 4);
}

TEST_CASE("memory is counted while it is allocated, also after a move") {
  const MemoryCounters before = memory_counters();
  {
    Memory first(Device::cpu(), 1000);
    Memory second = std::move(first);
    CHECK(first.data() == nullptr);
    CHECK(second.bytes() == 1000);
    CHECK(memory_counters().live_bytes == before.live_bytes + 1000);
    CHECK(memory_counters().allocations == before.allocations + 1);
  }
  CHECK(memory_counters().live_bytes == before.live_bytes);
}

TEST_CASE("copy and zero move bytes in stream order") {
  StreamSet streams(Device::cpu(), {.order = StreamOrder::comm_late});
  Stream& stream = streams.add("compute");
  float a[3] = {1, 2, 3}, b[3] = {};
  copy(stream, tensor_of(b, {3}), tensor_of(a, {3}));
  zero(stream, tensor_of(a, {3}));
  CHECK(b[1] == 0.0f);
  stream.sync();
  CHECK(b[1] == 2.0f);
  CHECK(a[1] == 0.0f);
  CHECK(test::error_of([&] { copy(stream, tensor_of(b, {3}), tensor_of(a, {2})); }) ==
        "copy of f32 (2) into f32 (3)");
}

TEST_CASE("a guarded arena leaves its own tensors usable, at every size and offset") {
  Arena arena("scratch", Device::cpu());
  const auto fill = [&] {
    for (const int64_t size : {1, 7, 64, 65, 200}) {
      const Tensor t = arena.alloc(DType::f32, {size});
      if (!arena.planning())
        for (int64_t i = 0; i < size; ++i) t.as<float>()[i] = 1.0f;
    }
  };
  fill();
  arena.commit({.misalign = 4, .guard = true});
  fill();
  arena.rewind(0);
  const Tensor whole = arena.alloc(DType::f32, {400});
  for (int64_t i = 0; i < whole.size(); ++i) whole.as<float>()[i] = 2.0f;
  CHECK(whole.as<float>()[399] == 2.0f);
}
