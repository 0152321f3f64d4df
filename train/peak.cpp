#include "train/peak.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "kernels/gemm.h"
#include "runtime/arena.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

constexpr int64_t kSize = 1024;
constexpr double kSeconds = 0.15;

Gemm product_in(Arena& arena, DType compute) {
  const Shape square{kSize, kSize};
  return {.c = arena.alloc(DType::f32, square),
          .a = arena.alloc(compute, square),
          .b = arena.alloc(compute, square)};
}

double measured_peak(DType compute) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  Arena operands("peak operands", Device::cpu()), scratch("peak scratch", Device::cpu());
  StreamGroup planning(Device::cpu(), {.planning = true}), streams(Device::cpu());
  gemm(planning.add("compute"), scratch, product_in(operands, compute));
  operands.commit();
  scratch.commit();

  Stream& stream = streams.add("compute");
  const Gemm product = product_in(operands, compute);
  zero(stream, product.a);
  zero(stream, product.b);
  gemm(stream, scratch, product);
  // The mean over the time, not the best of it: where ranks share a processor each has a part of it.
  double work = 0;
  const auto begin = Clock::now();
  while (seconds(Clock::now() - begin) < kSeconds) {
    gemm(stream, scratch, product);
    work += flops(product);
  }
  return work / seconds(Clock::now() - begin);
}

// A process that trains many times, as tests do, waits for this once.
double own_peak(DType compute) {
  static std::map<std::pair<DType, int>, double> known;
  double& peak = known[{compute, thread_count()}];
  if (peak == 0) peak = measured_peak(compute);
  return peak;
}

}  // namespace

double matrix_peak(World& world, DType compute) {
  world.barrier("measuring the peak");
  const double mine = own_peak(compute);
  double sum = 0;
  for (const double rate : world.all_gather({&mine, 1}, "the peak")) sum += rate;
  return sum;
}

}  // namespace flatshard
