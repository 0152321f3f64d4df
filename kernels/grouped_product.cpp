#include "kernels/grouped_product.h"

#include <cstring>
#include <optional>
#include <utility>

#include "build_config.h"
#include "kernels/gemm.h"
#include "kernels/host_product.h"
#include "kernels/op.h"

namespace flatshard {
namespace {

void check_grouped(const GroupedProduct& g) {
  const int64_t segments = g.offsets.size() - 1, rows = g.a.shape[0];
  const auto fits = [&] {
    if (g.a.shape.rank() != 2 || segments < 1) return false;
    if (g.transpose_a)
      return g.b.shape.rank() == 2 && g.b.shape[0] == rows &&
             g.c.shape == Shape({segments, g.a.shape[1], g.b.shape[1]});
    return g.b.shape.rank() == 3 && g.b.shape[0] == segments &&
           g.b.shape[g.transpose_b ? 2 : 1] == g.a.shape[1] &&
           g.c.shape == Shape({rows, g.b.shape[g.transpose_b ? 1 : 2]});
  };
  check(fits(), "grouped_product: c ", g.c.shape, " = a ", g.a.shape, g.transpose_a ? "^T" : "", " b ",
        g.b.shape, g.transpose_b ? "^T" : "", " in ", segments, " segments: shapes do not fit");
  check(g.offsets.dtype == DType::i32, "grouped_product: offsets are ", g.offsets.dtype, ", must be i32");
  check(rows % kSegmentRows == 0, "grouped_product: ", rows, " rows, must be a multiple of ", kSegmentRows);
  check(is_float(g.a.dtype) && g.b.dtype == g.a.dtype &&
            (g.c.dtype == g.a.dtype || (g.transpose_a && g.c.dtype == DType::f32)),
        "grouped_product: c is ", g.c.dtype, ", a is ", g.a.dtype, ", b is ", g.b.dtype,
        "; they must have one dtype, but c of sums over rows may be f32");
  check(!(g.transpose_a && g.transpose_b) && (g.transpose_a || !g.accumulate) &&
            (!g.transpose_a || std::holds_alternative<std::monostate>(g.end)),
        "grouped_product: only sums over rows accumulate, and they have no transposed b and no end");
}

// Matrix e of three dimensions.
Tensor matrix_of(const Tensor& all, int64_t e) {
  return all.slice(e, e + 1).view({all.shape[1], all.shape[2]});
}

// The product of rows [row, row + kSegmentRows) with the matrix of segment e, added to c if `accumulate`.
Gemm part_of(const GroupedProduct& g, const Tensor& c, int64_t e, int64_t row, bool accumulate) {
  const auto rows = [&](const Tensor& of) { return of.slice(row, row + kSegmentRows); };
  return {.c = g.transpose_a ? c : rows(c),
          .a = rows(g.a),
          .b = g.transpose_a ? rows(g.b) : matrix_of(g.b, e),
          .transpose_a = g.transpose_a,
          .transpose_b = g.transpose_b,
          .accumulate = accumulate};
}

void clear(const Tensor& t) { std::memset(t.data, 0, static_cast<size_t>(t.bytes())); }

// c = sums, or c += sums, rounded once.
void round_sums(const Tensor& c, const Tensor& sums, bool accumulate) {
  visit_float(c.dtype, [&]<class T>() {
    const auto* const from = sums.as<float>();
    T* const to = c.as<T>();
    for (int64_t i = 0; i < c.size(); ++i)
      to[i] = T(accumulate ? from[i] + static_cast<float>(to[i]) : from[i]);
  });
}

// The same products on the CPU, a piece of kSegmentRows rows at a time.
class HostSegments {
 public:
  HostSegments(Arena& scratch, const GroupedProduct& g)
      : g_(g),
        sums_(g.transpose_a && g.c.dtype != DType::f32
                  ? scratch.alloc(DType::f32, {g.c.shape[1], g.c.shape[2]})
                  : Tensor{}),
        first_(scratch, part_of(g, target(0), 0, 0, false)),
        next_(scratch, part_of(g, target(0), 0, 0, g.transpose_a)) {}

  void run() const {
    const auto* const offsets = g_.offsets.as<int32_t>();
    const int64_t segments = g_.offsets.size() - 1;
    for (int64_t e = 0; e < segments; ++e)
      g_.transpose_a ? add_rows(e, offsets[e], offsets[e + 1]) : multiply_rows(e, offsets[e], offsets[e + 1]);
    if (!g_.transpose_a) clear(g_.c.slice(offsets[segments], g_.c.shape[0]));
  }

 private:
  Tensor target(int64_t e) const {
    if (!g_.transpose_a) return g_.c;
    return sums_.empty() ? matrix_of(g_.c, e) : sums_;
  }
  void multiply_rows(int64_t e, int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; row += kSegmentRows) first_.run(part_of(g_, g_.c, e, row, false));
  }
  void add_rows(int64_t e, int64_t begin, int64_t end) const {
    const bool in_place = sums_.empty(), keeps = in_place && g_.accumulate;
    if (begin == end && !keeps) clear(target(e));
    for (int64_t row = begin; row < end; row += kSegmentRows) {
      const bool adds = keeps || row > begin;
      (adds ? next_ : first_).run(part_of(g_, target(e), e, row, adds));
    }
    if (!in_place) round_sums(matrix_of(g_.c, e), sums_, g_.accumulate);
  }

  GroupedProduct g_;
  Tensor sums_;  // of one segment, if c has 16 bits
  HostProduct first_, next_;
};

void multiply_on_gpu(Stream& stream, const GroupedProduct& g) {
  if constexpr (kCublasBuilt) {
    check(
        cuda::multiplies_groups_on_sm90(g),
        "grouped_product: it takes a GPU of sm_90 (Hopper), a build with kernels for it, and 16-bit operands "
        "whose rows begin at multiples of 16 bytes");
    return cuda::grouped_product_sm90(stream, g);
  }
  stream.run("grouped_product", [] {});  // throws unless the stream is planning
}

}  // namespace

void grouped_product(Stream& stream, Arena& scratch, const GroupedProduct& g) {
  check_grouped(g);
  if (g.c.empty()) return;
  if (g.a.empty()) return g.transpose_a && !g.accumulate ? zero(stream, g.c) : void();
  const ArenaScope scope(scratch);
  const bool on_gpu = stream.device().is_cuda();
  const std::optional<HostSegments> on_cpu =
      on_gpu ? std::nullopt : std::optional<HostSegments>(std::in_place, scratch, g);
  if (plans(stream, "grouped_product", g, g.c)) return;
  if constexpr (kCublasBuilt)
    if (on_gpu && cuda::ends_groups_on_sm90(g)) return multiply_on_gpu(stream, g);
  GroupedProduct alone = g;
  alone.end = {};
  if (on_gpu)
    multiply_on_gpu(stream, alone);
  else if (on_cpu)
    stream.run("grouped_product", [=] { on_cpu->run(); });
  run(stream, g.end);
}

double min_bytes(const GroupedProduct& g) {
  return bytes_of(g.a, g.b, g.c) + (g.accumulate ? bytes_of(g.c) : 0);
}
double flops(const GroupedProduct& g) {
  const int64_t width = g.transpose_a ? g.b.shape[1] : g.c.shape[1];
  return 2.0 * static_cast<double>(g.a.size()) * static_cast<double>(width);
}

}  // namespace flatshard
