// How fast the machine is: warp instructions per second of one core, for the project's kernels on shapes that
// tests have, some megabytes. Not a test: it compares with nothing.
//   ptx_vm_speed [--no-races]

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <vector>

#include "kernels/adamw.h"
#include "kernels/rmsnorm.h"
#include "runtime/memory.h"
#include "tests/ptx_vm/ptx_vm.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

constexpr int64_t kRows = 64, kColumns = 2048, kParameters = 1 << 17;
constexpr int kRepeats = 100;

class Device0 {
 public:
  Tensor make(DType dtype, const Shape& shape) {
    Tensor t{nullptr, dtype, shape, Device::cuda(0)};
    memories_.emplace_back(Device::cuda(0), t.bytes());
    t.data = memories_.back().data();
    zero(stream, t);
    return t;
  }

 private:
  StreamGroup streams_{Device::cuda(0)};
  std::vector<Memory> memories_;

 public:
  Stream& stream = streams_.add("compute");
};

double processor_seconds() {  // of this process: other programs do not count
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Work>
void measure(const char* name, Work&& work) {
  work();
  std::vector<double> rates;
  uint64_t count = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const uint64_t before = counters().warp_instructions;
    const double begin = processor_seconds();
    work();
    count = counters().warp_instructions - before;
    rates.push_back(static_cast<double>(count) / (processor_seconds() - begin) / 1e6);
  }
  std::sort(rates.begin(), rates.end());
  std::printf("%-18s %8.1f thousand warp instructions   %6.1f M/s (median; best %.1f)\n", name,
              static_cast<double>(count) / 1e3, rates[rates.size() / 2], rates.back());
}

}  // namespace

int main(int argc, char** argv) {
  options().finds_races = !(argc > 1 && std::string_view(argv[1]) == "--no-races");
  Device0 d;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = d.make(dtype, {kRows, kColumns}), y = d.make(dtype, {kRows, kColumns});
    const Tensor w = d.make(dtype, {kColumns}), rstd = d.make(DType::f32, {kRows});
    measure(dtype == DType::f32 ? "rmsnorm f32" : "rmsnorm bf16", [&] {
      rmsnorm_forward(d.stream, {.y = y, .rstd = rstd, .x = x, .w = w, .eps = 1e-5f});
      d.stream.sync();
    });
  }
  const Tensor p = d.make(DType::f32, {kParameters}), m = d.make(DType::f32, {kParameters});
  const Tensor v = d.make(DType::f32, {kParameters}), g = d.make(DType::f32, {kParameters});
  const Tensor copy = d.make(DType::bf16, {kParameters}), scale = d.make(DType::f32, {1});
  measure("adamw", [&] {
    adamw(d.stream, {.p = p,
                     .m = m,
                     .v = v,
                     .copy = copy,
                     .g = g,
                     .grad_scale = scale,
                     .skip = {},
                     .lr = 1e-3,
                     .decay_end = kParameters,
                     .step = 1});
    d.stream.sync();
  });
  return 0;
}
