#include "kernels/transpose.h"

#include <algorithm>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/parallel_write.h"

namespace flatshard {
namespace {

// Rows of x whose cache lines are read for one row of y after the other.
constexpr int64_t kRowsAtOnce = 64;

template <class T>
void copy_transposed(const Transpose& a) {
  const int64_t R = a.x.shape[0], C = a.x.shape[1];
  const T* const x = a.x.as<T>();
  T* const y = a.y.as<T>();
  const int64_t strips = (R + kRowsAtOnce - 1) / kRowsAtOnce;
  parallel_blocks(strips, rows_per_block(kRowsAtOnce * C), [&](int64_t first, int64_t last) {
    for (int64_t strip = first; strip < last; ++strip) {
      const int64_t begin = strip * kRowsAtOnce, end = std::min(R, begin + kRowsAtOnce);
      for (int64_t c = 0; c < C; ++c)
        for (int64_t r = begin; r < end; ++r) y[c * R + r] = x[r * C + c];
    }
  });
}

}  // namespace

void transpose(Stream& stream, const Transpose& a) {
  check(is_float(a.x.dtype) && a.x.shape.rank() == 2 && a.y.dtype == a.x.dtype && a.y.shape.rank() == 2 &&
            a.y.shape[0] == a.x.shape[1] && a.y.shape[1] == a.x.shape[0],
        "transpose: x is ", a.x.dtype, " ", a.x.shape, ", y is ", a.y.dtype, " ", a.y.shape,
        ": y must have the columns of x as rows, in f32, bf16 or f16");
  if (a.x.empty() || plans(stream, "transpose", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::transpose(stream, a);
  stream.run("transpose", [a] { visit_float(a.x.dtype, [&]<class T>() { copy_transposed<T>(a); }); });
}

double min_bytes(const Transpose& a) { return bytes_of(a.x, a.y); }
double flops(const Transpose&) { return 0; }

}  // namespace flatshard
