// RoPE on the GPU, with the same bits as on the CPU. Index i runs over the pairs of all heads. It stands for
// the first element of the pair; the second is D / 2 elements further.
//
// Memory bandwidth limits it: an element moves 4 bytes and takes 22 instructions of a budget of 25
// (flat.cuh), a third of them for the two divisions per pack. The caches serve the table, which all heads of
// a token share. With 56 registers, an SM runs 1024 threads, with 32 KiB of x in flight.

#include "kernels/flat.cuh"
#include "kernels/rope.h"

namespace flatshard::cuda {
namespace {

// A pack is a full access to the table; the access to x may be shorter.
constexpr int kPairs = kPackSize<float>;

template <class T>
struct Rotate {
  T* y;
  const T* x;
  const int32_t* positions;
  const float* table;
  int64_t y_stride, x_stride, H, half, table_rows;
  float sign;

  template <int N>
  struct Inputs {
    int64_t to;
    Pack<T, N> a, b;
    Pack<float, N> cosines, sines;
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    const int64_t head = i / half, pair = i % half, token = head / H, column = head % H * 2 * half + pair;
    const int32_t position = positions[token];
    require(position >= 0 && position < table_rows);
    const T* from = x + token * x_stride + column;
    const float* turn = table + position * 2 * half + pair;
    return {token * y_stride + column, load<T, N>(from), load<T, N>(from + half), load<float, N>(turn),
            load<float, N>(turn + half)};
  }
  template <int N>
  __device__ void write(int64_t, const Inputs<N>& in) const {
    Pack<T, N> first, second;
    for (int j = 0; j < N; ++j) {
      const float a = to_float(in.a.element[j]), b = to_float(in.b.element[j]);
      const float cosine = in.cosines.element[j], sine = in.sines.element[j] * sign;
      first.element[j] = from_float<T>(fmaf(a, cosine, -b * sine));
      second.element[j] = from_float<T>(fmaf(b, cosine, a * sine));
    }
    store<T, N>(y + in.to, first);
    store<T, N>(y + in.to + half, second);
  }
};

}  // namespace

void rotate(Stream& stream, const char* op_name, const Rotation& r) {
  visit_float(r.x.dtype, [&]<class T>() {
    const int64_t H = r.x.shape[1], half = r.x.shape[2] / 2;
    const Rotate<T> op{.y = r.y.as<T>(),
                       .x = r.x.as<T>(),
                       .positions = r.positions.as<int32_t>(),
                       .table = r.table.as<float>(),
                       .y_stride = r.y_stride,
                       .x_stride = r.x_stride,
                       .H = H,
                       .half = half,
                       .table_rows = r.table.shape[0],
                       .sign = r.sign};
    const bool packs =
        packable<T>(half, op.y, op.x, op.table) && packable<T>(r.y_stride) && packable<T>(r.x_stride);
    launch_flat<kPairs>(stream, op_name, op, r.x.size() / 2, packs);
  });
}

}  // namespace flatshard::cuda
