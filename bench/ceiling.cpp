#include "bench/ceiling.h"

#include <cstring>
#include <memory>

#include "bench/case.h"
#include "bench/measure.h"
#include "kernels/gemm.h"
#include "kernels/simd.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"
#include "runtime/stopwatch.h"

namespace flatshard::bench {
namespace {

constexpr int kRounds = 8;
constexpr double kMatrixSeconds = 0.25;
constexpr int64_t kSmallestSquare = 256;
constexpr int64_t kHostFloats = int64_t{1} << 26, kDeviceFloats = int64_t{1} << 28;
constexpr int64_t kBlockFloats = 1 << 18;  // 1 MiB per task

void copy_memcpy(float* dst, const float* src, int64_t n) {
  std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

void copy_vectors(float* dst, const float* src, int64_t n) {
  simd::for_each_vector(
      n, [&](int64_t i, auto lanes) { simd::store(dst + i, simd::load(src + i, lanes), lanes); });
}

void copy_past_caches(float* dst, const float* src, int64_t n) {
  simd::for_each_vector(n, [&](int64_t i, auto lanes) {
    if constexpr (std::is_same_v<decltype(lanes), simd::Full>)
      simd::store_past_caches(dst + i, simd::load(src + i));
    else
      simd::store(dst + i, simd::load(src + i, lanes), lanes);
  });
  simd::store_fence();
}

// Reads n floats and writes one.
void read_vectors(float* dst, const float* src, int64_t n) {
  simd::Floats largest = simd::splat(0);
  simd::for_each_vector(
      n, [&](int64_t i, auto lanes) { largest = simd::max(largest, simd::load(src + i, lanes)); });
  *dst = simd::max(largest);
}

// A buffer of random numbers, and a buffer for a copy of them.
class CopyBuffers {
 public:
  CopyBuffers(Device device, int64_t floats)
      : streams_(device), stream_(streams_.add("copy")), from_(device, floats * 4), to_(device, floats * 4) {
    const Memory host(Device::cpu(), floats * 4);
    float* values = static_cast<float*>(host.data());
    parallel_blocks(floats, kBlockFloats, [&](int64_t begin, int64_t end) {
      uint32_t state = static_cast<uint32_t>(begin) * 2654435761u + 1;
      for (int64_t i = begin; i < end; ++i) {
        state = state * 1664525u + 1013904223u;
        values[i] = static_cast<float>(state >> 8) * 0x1p-24f;
      }
    });
    copy(stream_, from(), tensor_of(values, {floats}));
    copy(stream_, to(), from());
    stream_.sync();
  }

  Tensor from() const { return tensor_in(from_); }
  Tensor to() const { return tensor_in(to_); }
  Stream& stream() { return stream_; }

 private:
  static Tensor tensor_in(const Memory& m) {
    return tensor_of(static_cast<float*>(m.data()), {m.bytes() / 4}, m.device());
  }

  StreamSet streams_;
  Stream& stream_;
  Memory from_, to_;
};

double bytes_of(int64_t floats) { return sizeof(float) * static_cast<double>(floats); }

// The time of `work` on a stream. `work` also runs once before, untimed, which keeps a GPU busy until the
// host has enqueued everything.
template <class Work>
double seconds_on(Stream& stream, Work&& work) {
  Stopwatch watch(stream);
  if (stream.device().is_cuda()) work();
  watch.start();
  work();
  watch.stop();
  return watch.seconds();
}

Ceiling device_copy_ceiling(Device device, int64_t floats) {
  const auto buffers = std::make_shared<CopyBuffers>(device, floats);
  return Ceiling({{"from device memory to device memory", 2 * bytes_of(floats), [buffers] {
                     Stream& stream = buffers->stream();
                     return seconds_on(stream, [&] { copy(stream, buffers->to(), buffers->from()); });
                   }}});
}

// The time of loop(to, from, n) on every block of the buffers.
template <class Loop>
double seconds_of_blocks(const CopyBuffers& buffers, Loop loop) {
  const float* from = buffers.from().as<float>();
  float* to = buffers.to().as<float>();
  return seconds_of([&] {
    parallel_blocks(buffers.from().size(), kBlockFloats,
                    [&](int64_t begin, int64_t end) { loop(to + begin, from + begin, end - begin); });
  });
}

// The ceilings of a copy, and of reading alone.
std::pair<Ceiling, Ceiling> host_memory_ceilings(int64_t floats) {
  const auto buffers = std::make_shared<CopyBuffers>(Device::cpu(), floats);
  const auto way = [&](const char* name, double bytes, void (*loop)(float*, const float*, int64_t)) {
    return Ceiling::Way{name, bytes, [=] { return seconds_of_blocks(*buffers, loop); }};
  };
  const double bytes = bytes_of(floats);
  return {Ceiling({way("memcpy", 2 * bytes, copy_memcpy), way("vector loop", 2 * bytes, copy_vectors),
                   way("vector loop, non-temporal", 2 * bytes, copy_past_caches)}),
          Ceiling({way("vector loop", bytes, read_vectors)})};
}

Case matrix_case(DType dtype, int64_t n) {
  const auto product = [](const Tensors& t) { return Gemm{.c = t["c"], .a = t["a"], .b = t["b"]}; };
  return {.op = "gemm",
          .shape = str(n, " x ", n, " x ", n),
          .dtype = dtype,
          .args = {{"a", dtype, {n, n}, Role::input},
                   {"b", dtype, {n, n}, Role::input},
                   {"c", dtype, {n, n}, Role::output}},
          .run = [=](Stream& s, Arena& scratch, const Tensors& t) { gemm(s, scratch, product(t)); },
          .flops = [=](const Tensors& t) { return flops(product(t)); }};
}

// The ceiling of square products, measured with the two largest sizes that take at most kMatrixSeconds.
Ceiling matrix_ceiling(Device device, DType dtype, int64_t largest) {
  struct Product {
    Product(Case c, Device device) : problem(std::move(c)), setup(problem, {.device = device}) {}
    double seconds() {
      return seconds_on(setup.stream(), [&] { setup.launch(0); });
    }
    Case problem;
    Setup setup;
  };
  std::vector<Ceiling::Way> ways;
  for (int64_t n = kSmallestSquare; n <= largest; n *= 2) {
    const auto product = std::make_shared<Product>(matrix_case(dtype, n), device);
    if (ways.size() == 2) ways.erase(ways.begin());
    ways.push_back({product->problem.shape, product->problem.flops(product->setup.tensors()),
                    [product] { return product->seconds(); }});
    double fastest = ways.back().seconds();
    for (int round = 0; round < kRounds; ++round) fastest = std::min(fastest, ways.back().seconds());
    if (8 * fastest > kMatrixSeconds) break;
  }
  return Ceiling(std::move(ways));
}

}  // namespace

Ceiling::Ceiling(std::vector<Way> ways) {
  check(!ways.empty(), "a ceiling needs at least one way to measure it");
  std::vector<double> best(ways.size(), 0);
  for (const Way& way : ways) way.seconds();
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < ways.size(); ++i) best[i] = std::max(best[i], ways[i].work / ways[i].seconds());
  const size_t winner = static_cast<size_t>(std::max_element(best.begin(), best.end()) - best.begin());
  way_ = std::move(ways[winner]);
  first_ = best[winner];
}

double Ceiling::sample(double least_seconds) {
  using Clock = std::chrono::steady_clock;
  int64_t runs = 0;
  double seconds = 0;
  const auto began = Clock::now();
  do {
    seconds += way_.seconds();
    ++runs;
  } while (std::chrono::duration<double>(Clock::now() - began).count() < least_seconds);
  return way_.work * static_cast<double>(runs) / seconds;
}

double Ceiling::measure() {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) best = std::max(best, sample());
  return best;
}

Ceiling* Ceilings::matrix(DType dtype) {
  std::optional<Ceiling>& ceiling = dtype == DType::bf16 ? bf16 : f32;
  return ceiling ? &*ceiling : nullptr;
}

Ceilings measure_ceilings(Device device, const CeilingSizes& sizes) {
  const auto floats = [&](int64_t usual) { return sizes.copy_floats > 0 ? sizes.copy_floats : usual; };
  Ceilings ceilings = [&]() -> Ceilings {
    if (device.is_cuda()) return {.copy = device_copy_ceiling(device, floats(kDeviceFloats))};
    auto [copy, read] = host_memory_ceilings(floats(kHostFloats));
    return {.copy = std::move(copy), .read = std::move(read)};
  }();
  if (device.is_cuda() && !golden_cases("gemm").front().has_cuda_kernel) {
    ceilings.no_matrix = "this build has no CUDA gemm to measure it";
  } else {
    for (const DType dtype : sizes.products)
      (dtype == DType::bf16 ? ceilings.bf16 : ceilings.f32) =
          matrix_ceiling(device, dtype, sizes.largest_square);
  }
  return ceilings;
}

}  // namespace flatshard::bench
