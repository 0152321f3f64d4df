// RoPE on the GPU, with the same bits as on the CPU. Index i runs over the pairs of all heads. The elements
// of a pair are R / 2 apart, or neighbors: then a pack of first elements and one of second elements lie
// interleaved in two packs of memory.
//
// Memory bandwidth limits it: an element takes 22 instructions of a budget of 25 (flat.cuh), or 25 with
// several axes, and 56 registers. The caches serve the table, which all heads of a token share.

#include "kernels/flat.cuh"
#include "kernels/rope.h"

namespace flatshard::cuda {
namespace {

// A pack is a full access to the table; the access to x may be shorter.
constexpr int kPairs = kPackSize<float>;

// kAxes tells whether there are several axes of positions.
template <class T, bool kInterleaved, bool kAxes>
struct Rotate {
  T* y;
  const T* x;
  const int32_t* positions;
  const float* table;
  int64_t y_stride, x_stride, H, D, half, table_rows, tokens;
  int64_t first_end, second_end;  // number of pairs of axis 0, and of axes 0 and 1
  float sign;

  template <int N>
  struct Inputs {
    int64_t to;
    Pack<T, N> a, b;  // consecutive packs in memory
    Pack<float, N> cosines, sines;
  };
  // Element j of a pack of first or second elements.
  template <int N>
  __device__ static T& element(Pack<T, N>& a, Pack<T, N>& b, int j, bool second) {
    if constexpr (!kInterleaved) return (second ? b : a).element[j];
    const int at = 2 * j + (second ? 1 : 0);
    return at < N ? a.element[at] : b.element[at - N];
  }
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    const int64_t head = i / half, pair = i % half, token = head / H,
                  column = head % H * D + (kInterleaved ? 2 * pair : pair);
    int64_t at = token;
    if constexpr (kAxes) at += pair < first_end ? 0 : pair < second_end ? tokens : 2 * tokens;
    const int32_t position = positions[at];
    require(position >= 0 && position < table_rows);
    const T* from = x + token * x_stride + column;
    const float* turn = table + position * (2 * half) + pair;
    return {token * y_stride + column, load<T, N>(from), load<T, N>(from + (kInterleaved ? N : half)),
            load<float, N>(turn), load<float, N>(turn + half)};
  }
  template <int N>
  __device__ void write(int64_t, Inputs<N> in) const {
    for (int j = 0; j < N; ++j) {
      T &first = element(in.a, in.b, j, false), &second = element(in.a, in.b, j, true);
      const float a = to_float(first), b = to_float(second);
      const float cosine = in.cosines.element[j], sine = in.sines.element[j] * sign;
      first = from_float<T>(fmaf(a, cosine, -b * sine));
      second = from_float<T>(fmaf(b, cosine, a * sine));
    }
    store<T, N>(y + in.to, in.a);
    store<T, N>(y + in.to + (kInterleaved ? N : half), in.b);
  }
};

}  // namespace

void rotate(Stream& stream, const char* op_name, const Rotation& r) {
  const auto launch = [&]<class T, bool kInterleaved, bool kAxes>() {
    const int64_t H = r.x.shape[1], D = r.x.shape[2], half = r.table.shape[1] / 2;
    const Rotate<T, kInterleaved, kAxes> op{.y = r.y.as<T>(),
                                            .x = r.x.as<T>(),
                                            .positions = r.positions.as<int32_t>(),
                                            .table = r.table.as<float>(),
                                            .y_stride = r.y_stride,
                                            .x_stride = r.x_stride,
                                            .H = H,
                                            .D = D,
                                            .half = half,
                                            .table_rows = r.table.shape[0],
                                            .tokens = r.x.shape[0],
                                            .first_end = r.sections[0],
                                            .second_end = r.sections[0] + r.sections[1],
                                            .sign = r.sign};
    const bool packs = packable<T>(half, op.y, op.x, op.table) && packable<T>(D) && packable<T>(r.y_stride) &&
                       packable<T>(r.x_stride) && packable<float>(op.first_end) &&
                       packable<float>(op.second_end);
    launch_flat<kPairs>(stream, op_name, op, r.x.shape[0] * H * half, packs);
  };
  visit_float(r.x.dtype, [&]<class T>() {
    if (r.axes == 1)
      return r.interleaved ? launch.template operator()<T, true, false>()
                           : launch.template operator()<T, false, false>();
    r.interleaved ? launch.template operator()<T, true, true>()
                  : launch.template operator()<T, false, true>();
  });
}

}  // namespace flatshard::cuda
