#include "train/measure/peak.h"

#include <chrono>

#include "kernels/gemm.h"
#include "kernels/init.h"
#include "kernels/tuned_products.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

constexpr double kSeconds = 0.15;
// The smallest square product that takes this long is measured: small ones do not fill a GPU.
constexpr int64_t kSmallest = 512, kLargest = 8192;
constexpr double kLongEnough = 4e-3;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Gemm product_in(Arena& arena, DType compute, bool tf32, int64_t size) {
  const Shape square{size, size};
  return {.c = arena.alloc(DType::f32, square),
          .a = arena.alloc(compute, square),
          .b = arena.alloc(compute, square),
          .tf32 = tf32};
}

// Square matrix products on a device.
class Squares {
 public:
  Squares(Device device, DType compute, bool tf32, int64_t size)
      : operands_("peak operands", device), scratch_("peak scratch", device), streams_(device) {
    StreamSet planning(device, {.planning = true});
    gemm(planning.add("compute"), scratch_, product_in(operands_, compute, tf32, size));
    operands_.commit();
    scratch_.commit();
    product_ = product_in(operands_, compute, tf32, size);
    const RandomStream random(0, "peak");  // zeros draw less power on a GPU and run faster
    for (const Tensor& t : {product_.a, product_.b})
      init_param(stream_, {.y = t, .init = Init::uniform(1), .random = random});
    multiply();
  }

  double multiply() {
    const auto begin = Clock::now();
    gemm(stream_, scratch_, product_);
    stream_.sync();
    return seconds_since(begin);
  }
  double operations() const { return flops(product_); }
  // The mean over kSeconds, not the best: ranks may share a processor.
  double rate(double most_operations) {
    double work = 0;
    const auto begin = Clock::now();
    do {
      multiply();
      work += operations();
    } while (work < most_operations && seconds_since(begin) < kSeconds);
    return work / seconds_since(begin);
  }

 private:
  Arena operands_, scratch_;
  StreamSet streams_;
  Stream& stream_ = streams_.add("compute");
  Gemm product_;
};

double measured_peak(Device device, DType compute, bool tf32, double most_operations) {
  for (int64_t size = kSmallest;; size *= 2) {
    Squares squares(device, compute, tf32, size);
    if (size == kLargest || squares.operations() >= most_operations || squares.multiply() >= kLongEnough)
      return squares.rate(most_operations);
  }
}

}  // namespace

double matrix_peak(World& world, Device device, DType compute, bool tf32, double operations_of_run) {
  world.barrier("measuring the peak");
  const double mine = measured_peak(device, compute, tf32, operations_of_run / world.size());
  forget_planned_products();  // a run does not need products of this size
  double sum = 0;
  for (const double rate : world.all_gather({&mine, 1}, "the peak")) sum += rate;
  return sum;
}

}  // namespace flatshard
