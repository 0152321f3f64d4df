#include "kernels/elementwise.h"

#include <algorithm>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/parallel_write.h"
#include "kernels/simd_math.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

template <class To, class From>
void cast_rows(const Cast& a, int64_t y_stride, int64_t x_stride) {
  const int64_t C = a.y.shape[-1];
  parallel_write(
      write_only_bytes(a.y, a.x), a.y.rows(), rows_per_block(C), [&](int64_t begin, int64_t end, auto out) {
        for (int64_t row = begin; row < end; ++row) {
          const From* x = a.x.as<From>() + row * x_stride;
          To* y = a.y.as<To>() + row * y_stride;
          for_each_vector(C, [&](int64_t i, auto lanes) { out.store(y + i, load(x + i, lanes), lanes); });
        }
      });
}

template <class To, class From>
void cast(const Cast& a) {
  const From* x = a.x.as<From>();
  write_elements<To>(a.y, write_only_bytes(a.y, a.x),
                     [&](int64_t i, auto lanes) { return load(x + i, lanes); });
}

template <class T>
void add(const Add& args) {
  const T *a = args.a.as<T>(), *b = args.b.as<T>();
  const Floats factor = splat(args.factor);
  const int64_t written = args.y.data == args.b.data ? 0 : write_only_bytes(args.y, args.a);
  write_elements<T>(args.y, written, [&](int64_t i, auto lanes) {
    return fma(load(b + i, lanes), factor, load(a + i, lanes));
  });
}

template <class T>
void scale(const Scale& a) {
  const T* x = a.x.as<T>();
  write_elements<T>(a.y, write_only_bytes(a.y, a.x),
                    [&](int64_t i, auto lanes) { return load(x + i, lanes) * a.factor; });
}

template <class T>
void softcap(const Softcap& a) {
  const T* x = a.x.as<T>();
  const float inverse = 1 / a.cap;
  write_elements<T>(a.y, write_only_bytes(a.y, a.x),
                    [&](int64_t i, auto lanes) { return a.cap * tanh(load(x + i, lanes) * inverse); });
}

template <class T>
void place(const Place& a, int64_t y_stride) {
  const int64_t width = a.y.shape[1], C = a.x.shape[1];
  parallel_blocks(a.y.shape[0], rows_per_block(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* y = a.y.as<T>() + row * y_stride;
      std::fill_n(y, width, T(0.0f));
      std::copy_n(a.x.as<T>() + row * C, C, y + a.first);
    }
  });
}

}  // namespace
}  // namespace cpu

void cast(Stream& stream, const Cast& a) {
  check(a.y.size() == a.x.size(), "cast: y is ", a.y.dtype, " ", a.y.shape, ", x is ", a.x.dtype, " ",
        a.x.shape, "; they must have the same number of elements");
  check(is_float(a.y.dtype) && is_float(a.x.dtype), "cast: from ", a.x.dtype, " to ", a.y.dtype,
        "; both must be f32, bf16 or f16");
  check(a.y.empty() || a.y.data == nullptr || a.y.data != a.x.data || a.y.dtype == a.x.dtype, "cast: from ",
        a.x.dtype, " to ", a.y.dtype, " in place; x and y must not share memory");
  const int64_t y_stride = stride_or_width("cast: y", a.y_stride, a.y.shape[-1]),
                x_stride = stride_or_width("cast: x", a.x_stride, a.x.shape[-1]);
  const bool contiguous = y_stride == a.y.shape[-1] && x_stride == a.x.shape[-1];
  check(contiguous || a.y.shape == a.x.shape, "cast: between columns, y is ", a.y.shape, ", x is ", a.x.shape,
        "; they must have the same shape");
  if (a.y.empty() || plans(stream, "cast", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::cast(stream, a, y_stride, x_stride);
  stream.run("cast", [=] {
    visit_float(a.y.dtype, [&]<class To>() {
      visit_float(a.x.dtype, [&]<class From>() {
        contiguous ? cpu::cast<To, From>(a) : cpu::cast_rows<To, From>(a, y_stride, x_stride);
      });
    });
  });
}

void add(Stream& stream, const Add& a) {
  check_like("add", "a", a.a, "y", a.y);
  check_like("add", "b", a.b, "y", a.y);
  if (a.y.empty() || plans(stream, "add", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::add(stream, a);
  stream.run("add", [a] { visit_float(a.y.dtype, [&]<class T>() { cpu::add<T>(a); }); });
}

void scale(Stream& stream, const Scale& a) {
  check_like("scale", "x", a.x, "y", a.y);
  if (a.y.empty() || plans(stream, "scale", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::scale(stream, a);
  stream.run("scale", [a] { visit_float(a.y.dtype, [&]<class T>() { cpu::scale<T>(a); }); });
}

void softcap(Stream& stream, const Softcap& a) {
  check_like("softcap", "x", a.x, "y", a.y);
  check(a.cap > 0, "softcap: cap is ", a.cap, ", must be positive");
  if (a.y.empty() || plans(stream, "softcap", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::softcap(stream, a);
  stream.run("softcap", [a] { visit_float(a.y.dtype, [&]<class T>() { cpu::softcap<T>(a); }); });
}

void place(Stream& stream, const Place& a) {
  check(a.y.shape.rank() == 2 && a.x.shape.rank() == 2 && a.y.dtype == a.x.dtype &&
            a.y.shape[0] == a.x.shape[0] && a.first >= 0 && a.first + a.x.shape[1] <= a.y.shape[1],
        "place: x is ", a.x.dtype, " ", a.x.shape, ", which does not fit in y ", a.y.dtype, " ", a.y.shape,
        " from column ", a.first);
  const int64_t y_stride = stride_or_width("place: y", a.y_stride, a.y.shape[1]);
  if (a.y.empty() || plans(stream, "place", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::place(stream, a, y_stride);
  stream.run("place",
             [a, y_stride] { visit_float(a.y.dtype, [&]<class T>() { cpu::place<T>(a, y_stride); }); });
}

double min_bytes(const Cast& a) { return bytes_of(a.x, a.y); }
double min_bytes(const Add& a) { return bytes_of(a.a, a.b, a.y); }
double min_bytes(const Scale& a) { return bytes_of(a.x, a.y); }
double min_bytes(const Softcap& a) { return bytes_of(a.x, a.y); }
double min_bytes(const Place& a) { return bytes_of(a.x, a.y); }
double flops(const Cast&) { return 0; }
double flops(const Add& a) { return static_cast<double>(a.y.size()); }
double flops(const Scale& a) { return static_cast<double>(a.y.size()); }
double flops(const Softcap& a) { return 8.0 * static_cast<double>(a.y.size()); }
double flops(const Place&) { return 0; }

}  // namespace flatshard
