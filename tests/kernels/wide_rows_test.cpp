// Offsets of elements beyond 2^31 on the CPU.

#include "tests/kernels/wide_rows.h"

#include <algorithm>

#include "kernels/sum_squares.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::test;

TEST_CASE("rows that begin past element 2^32 get the bits of rows side by side") {
  const WidePlace cpu;
  for (const WideCase& c : wide_cases()) {
    CAPTURE(c.name);
    CHECK(c.run(cpu, true) == c.run(cpu, false));
  }
}

// 4 GiB of zeros that nobody has touched take no memory; the last element is the only other one.
TEST_CASE("a sum over more than 2^31 elements has its last element") {
  const WidePlace cpu;
  constexpr int64_t kSize = (int64_t{1} << 31) + 5,
                    kIntervals = (kSize + kSquaresInterval - 1) / kSquaresInterval;
  const WideMemory x(cpu, DType::bf16, 2, 1, kSize - 1);
  *reinterpret_cast<bf16*>(x.row(0)) = bf16(2.0f);
  *reinterpret_cast<bf16*>(x.row(1)) = bf16(3.0f);
  std::vector<float> partials(static_cast<size_t>(kIntervals), -1);
  run_wide(cpu, [&](Stream& s, Arena&) {
    sum_squares(s, {.partials = tensor_of(partials.data(), {kIntervals}), .x = x.as({kSize})});
  });
  CHECK(partials.front() == 4);
  CHECK(partials.back() == 9);
  CHECK(std::count(partials.begin(), partials.end(), 0.0f) == kIntervals - 2);
}

TEST_CASE("attention refuses more rows than its kernels count, and says how many they count") {
  const int64_t rows = kMostAttentionRows + 1;
  StreamSet planning(Device::cpu(), {.planning = true});
  Arena scratch("scratch", Device::cpu());
  const Tensor x{nullptr, DType::f32, {rows, 1, 8}, Device::cpu()};
  CHECK(missing_from(error_of([&] {
                       attention_forward(planning.add("compute"), scratch,
                                         {.o = x,
                                          .lse = {nullptr, DType::f32, {1, rows}, Device::cpu()},
                                          .q = x,
                                          .k = x,
                                          .v = x,
                                          .mask = {.cu_seqlens = {nullptr, DType::i32, {2}, Device::cpu()}},
                                          .scale = 1});
                     }),
                     {"1073740801 queries", "at most 1073740800"}) == "");
}
