#pragma once
// Ops on rows so far apart that offsets of elements exceed 2^31 and 2^32, and those of bytes more, for tests
// that compare bits with the same ops on rows side by side. The rows lie in address space that takes memory
// only where it is touched, so a test needs a few pages. Each case has every stride, table or number of heads
// of an op that can make offsets so large.

#include <cstring>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/four_bit.h"
#include "kernels/gather_rows.h"
#include "kernels/gemm.h"
#include "kernels/layernorm.h"
#include "kernels/qk_norm.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace flatshard::test {

// The rows of a case. The last of them begins at element 2^32 and more.
inline constexpr int64_t kWideRows = 5, kFarStride = (int64_t{1} << 30) + 64;

// Where ops run. lock() makes pages of the host usable for the device, unlock() ends this.
struct WidePlace {
  Device device = Device::cpu();
  std::function<void(void* pages, size_t bytes)> lock = [](void*, size_t) {};
  std::function<void(void* pages)> unlock = [](void*) {};
};

using WideBytes = std::vector<unsigned char>;

// `rows` rows of `width` elements that begin `stride` elements apart; all bytes are 0xff at first.
class WideMemory {
 public:
  WideMemory(const WidePlace& place, DType dtype, int64_t rows, int64_t width, int64_t stride)
      : place_(place), dtype_(dtype), rows_(rows), width_(width), stride_(stride) {
    const int64_t last = ((rows - 1) * stride + width) * size_of(dtype);
    bytes_ = static_cast<size_t>((last + kPage - 1) / kPage * kPage);
    begin_ = static_cast<char*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    check(begin_ != MAP_FAILED, "no address space for ", bytes_, " bytes");
    madvise(begin_, bytes_, MADV_NOHUGEPAGE);  // a huge page would take 2 MiB for each row
    if (stride == width) {
      add_pages(0, last);
    } else {
      for (int64_t r = 0; r < rows; ++r) add_pages(offset(r), offset(r) + width * size_of(dtype));
    }
    for (int64_t r = 0; r < rows; ++r) std::memset(row(r), 0xff, row_bytes());
  }
  ~WideMemory() {
    for (void* const pages : locked_) place_.unlock(pages);
    munmap(begin_, bytes_);
  }
  WideMemory(const WideMemory&) = delete;
  WideMemory& operator=(const WideMemory&) = delete;

  // A tensor of this shape that begins with the first row.
  Tensor as(const Shape& shape) const { return {begin_, dtype_, shape, place_.device}; }
  Tensor matrix() const { return as({rows_, width_}); }
  char* row(int64_t r) const { return begin_ + offset(r); }

  WideMemory& fill(int salt) {
    for (int64_t r = 0; r < rows_; ++r)
      visit_float(dtype_, [&]<class T>() {
        for (int64_t i = 0; i < width_; ++i)
          reinterpret_cast<T*>(row(r))[i] =
              T(static_cast<float>((r * width_ + i + salt * 41) * 37 % 101) / 50 - 1);
      });
    return *this;
  }
  WideMemory& set(const std::vector<int32_t>& values) {
    std::memcpy(begin_, values.data(), values.size() * sizeof(int32_t));
    return *this;
  }
  // The bytes of all rows, without what is between them.
  WideBytes bytes() const {
    WideBytes all;
    for (int64_t r = 0; r < rows_; ++r) all.insert(all.end(), row(r), row(r) + row_bytes());
    return all;
  }

 private:
  static constexpr int64_t kPage = 4096;

  int64_t offset(int64_t r) const { return r * stride_ * size_of(dtype_); }
  size_t row_bytes() const { return static_cast<size_t>(width_ * size_of(dtype_)); }
  void add_pages(int64_t begin, int64_t end) {
    const int64_t first = begin / kPage * kPage, past = (end + kPage - 1) / kPage * kPage;
    place_.lock(begin_ + first, static_cast<size_t>(past - first));
    locked_.push_back(begin_ + first);
  }

  const WidePlace& place_;
  DType dtype_;
  int64_t rows_, width_, stride_;
  size_t bytes_ = 0;
  char* begin_ = nullptr;
  std::vector<void*> locked_;
};

// Runs an op with the scratch that it plans, and waits.
template <class Op>
void run_wide(const WidePlace& place, Op&& op) {
  Arena scratch("scratch", place.device);
  {
    StreamSet planning(place.device, {.planning = true});
    op(planning.add("compute"), scratch);
  }
  scratch.commit();
  StreamSet streams(place.device);
  Stream& stream = streams.add("compute");
  op(stream, scratch);
  stream.sync();
}

// A case runs on rows that are far apart, or side by side, and returns what the op has written.
struct WideCase {
  std::string name;
  std::function<std::vector<WideBytes>(const WidePlace& place, bool far)> run;
};

namespace wide {

constexpr int64_t R = kWideRows;

inline int64_t stride_of(bool far, int64_t width) { return far ? kFarStride : width; }

inline std::vector<WideBytes> casts(const WidePlace& place, bool far) {
  constexpr int64_t C = 40;
  const int64_t stride = stride_of(far, C);
  WideMemory x(place, DType::f32, R, C, stride), y(place, DType::bf16, R, C, stride),
      placed(place, DType::f32, R, 2 * C, stride_of(far, 2 * C)), dropped(place, DType::f32, R, C, C),
      near(place, DType::f32, R, C, C);
  x.fill(1), near.fill(2), dropped.fill(3);
  run_wide(place, [&](Stream& s, Arena&) {
    cast(s, {.y = y.matrix(), .x = x.matrix(), .y_stride = stride, .x_stride = stride});
    flatshard::place(
        s, {.y = placed.matrix(), .x = near.matrix(), .first = 8, .y_stride = stride_of(far, 2 * C)});
    dropout_forward(s, {.out = dropped.matrix(),
                        .in = x.matrix(),
                        .p = 0.5f,
                        .random = RandomStream(1, "wide rows"),
                        .first = int64_t{1} << 33,
                        .in_stride = stride});
  });
  return {y.bytes(), placed.bytes(), dropped.bytes()};
}

inline std::vector<WideBytes> rows_by_number(const WidePlace& place, bool far) {
  constexpr int64_t C = 40;
  const int64_t stride = stride_of(far, C);
  WideMemory x(place, DType::bf16, R, C, stride), y(place, DType::bf16, R, C, stride),
      sums(place, DType::bf16, R, C, stride), index(place, DType::i32, 1, R, R);
  x.fill(1), sums.fill(2), index.set({4, 2, -1, 0, 3});
  run_wide(place, [&](Stream& s, Arena&) {
    gather_rows(
        s,
        {.y = y.matrix(), .x = x.matrix(), .index = index.as({R}), .y_stride = stride, .x_stride = stride});
    scatter_rows(s, {.y = sums.matrix(),
                     .x = x.matrix(),
                     .index = index.as({R}),
                     .add = true,
                     .y_stride = stride,
                     .x_stride = stride});
  });
  return {y.bytes(), sums.bytes()};
}

// The rows of a table that tokens and positions name: the first, and the last, which begins past element
// 2^32.
inline std::vector<WideBytes> tables(const WidePlace& place, bool far) {
  constexpr int64_t C = 1024;
  const int64_t V = far ? kFarStride * (R - 1) / C + 1 : R;
  const int32_t last = static_cast<int32_t>(V - 1);
  const int64_t stride = last * C;
  WideMemory w(place, DType::bf16, 2, C, stride), p(place, DType::bf16, 2, C, stride),
      dw(place, DType::f32, 2, C, stride), dp(place, DType::f32, 2, C, stride),
      y(place, DType::bf16, 3, C, C), dy(place, DType::bf16, 3, C, C), tokens(place, DType::i32, 1, 3, 3),
      positions(place, DType::i32, 1, 3, 3);
  w.fill(1), p.fill(2), dw.fill(3), dp.fill(4), dy.fill(5);
  tokens.set({last, 0, last}), positions.set({0, last, last});
  run_wide(place, [&](Stream& s, Arena& scratch) {
    embedding_forward(s, {.y = y.matrix(),
                          .w = w.as({V, C}),
                          .tokens = tokens.as({3}),
                          .p = p.as({V, C}),
                          .positions = positions.as({3})});
    embedding_backward(s, scratch,
                       {.dw = dw.as({V, C}),
                        .dy = dy.matrix(),
                        .tokens = tokens.as({3}),
                        .dp = dp.as({V, C}),
                        .positions = positions.as({3})});
  });
  return {y.bytes(), dw.bytes(), dp.bytes()};
}

inline std::vector<WideBytes> norms(const WidePlace& place, bool far) {
  constexpr int64_t C = 72;
  const int64_t stride = stride_of(far, C);
  WideMemory x(place, DType::bf16, R, C, C), w(place, DType::bf16, 1, C, C), b(place, DType::bf16, 1, C, C),
      y(place, DType::bf16, R, C, stride), z(place, DType::bf16, R, C, stride),
      mean(place, DType::f32, 1, R, R), rstd(place, DType::f32, 1, R, R);
  x.fill(1), w.fill(2), b.fill(3);
  run_wide(place, [&](Stream& s, Arena&) {
    rmsnorm_forward(s, {.y = y.matrix(),
                        .rstd = rstd.as({R}),
                        .x = x.matrix(),
                        .w = w.as({C}),
                        .eps = 1e-5f,
                        .y_stride = stride});
    layernorm_forward(s, {.y = z.matrix(),
                          .mean = mean.as({R}),
                          .rstd = rstd.as({R}),
                          .x = x.matrix(),
                          .w = w.as({C}),
                          .b = b.as({C}),
                          .eps = 1e-5f,
                          .y_stride = stride});
  });
  return {y.bytes(), z.bytes()};
}

// Heads of q and k in rows that have v, too.
inline std::vector<WideBytes> rotations(const WidePlace& place, bool far) {
  constexpr int64_t H = 3, D = 16, kWidth = (H + 1) * D, kPositions = 8;
  const int64_t stride = stride_of(far, kWidth);
  const Shape heads{R, H, D};
  WideMemory x(place, DType::bf16, R, kWidth, stride), y(place, DType::bf16, R, kWidth, stride),
      pairs(place, DType::f32, R, kWidth, stride), d(place, DType::bf16, R, kWidth, stride),
      normed(place, DType::bf16, R, H * D, H * D), w(place, DType::bf16, 1, D, D),
      rstd(place, DType::f32, R, H, H), dwq(place, DType::f32, 1, D, D), dwk(place, DType::f32, 1, D, D),
      table(place, DType::f32, kPositions, D, D), positions(place, DType::i32, 1, R, R);
  x.fill(1), y.fill(2), pairs.fill(3), d.fill(4), w.fill(5), positions.set({7, 0, 3, 1, 5});
  Tensor on_host = table.as({kPositions, D});
  on_host.device = Device::cpu();
  rope_table(on_host, 10000);
  const Tensor angles = table.as({kPositions, D}), at = positions.as({R});
  run_wide(place, [&](Stream& s, Arena& scratch) {
    rope_forward(s, {.y = y.as(heads),
                     .x = x.as(heads),
                     .positions = at,
                     .table = angles,
                     .y_stride = stride,
                     .x_stride = stride});
    rope_backward(s, {.dx = pairs.as(heads),
                      .dy = pairs.as(heads),
                      .positions = at,
                      .table = angles,
                      .dx_stride = stride,
                      .dy_stride = stride,
                      .interleaved = true});
    qk_norm_forward(s, {.y = normed.as(heads),
                        .rstd = rstd.matrix(),
                        .x = x.as(heads),
                        .wq = w.as({D}),
                        .wk = w.as({D}),
                        .positions = at,
                        .table = angles,
                        .x_stride = stride,
                        .query_heads = 2,
                        .eps = 1e-5f});
    qk_norm_backward(s, scratch,
                     {.dx = d.as(heads),
                      .dwq = dwq.as({D}),
                      .dwk = dwk.as({D}),
                      .dy = d.as(heads),
                      .x = x.as(heads),
                      .wq = w.as({D}),
                      .wk = w.as({D}),
                      .rstd = rstd.matrix(),
                      .positions = at,
                      .table = angles,
                      .dx_stride = stride,
                      .dy_stride = stride,
                      .x_stride = stride,
                      .query_heads = 2,
                      .accumulate = false});
  });
  return {y.bytes(), pairs.bytes(), normed.bytes(), rstd.bytes(), d.bytes(), dwq.bytes(), dwk.bytes()};
}

inline std::vector<WideBytes> gates(const WidePlace& place, bool far) {
  constexpr int64_t F = 40;
  const int64_t stride = stride_of(far, 2 * F), y_stride = stride_of(far, F);
  WideMemory up(place, DType::bf16, R, 2 * F, stride), d(place, DType::bf16, R, 2 * F, stride),
      y(place, DType::bf16, R, F, y_stride), dy(place, DType::bf16, R, F, F);
  up.fill(1), dy.fill(2);
  const auto half = [](const WideMemory& of, int64_t begin) {
    Tensor columns = of.as({R, F});
    columns.data = static_cast<char*>(columns.data) + begin * size_of(columns.dtype);
    return columns;
  };
  run_wide(place, [&](Stream& s, Arena&) {
    swiglu_forward(s, {.y = y.matrix(),
                       .gate = half(up, 0),
                       .up = half(up, F),
                       .row_stride = stride,
                       .y_stride = y_stride});
    swiglu_backward(s, {.dgate = half(d, 0),
                        .dup = half(d, F),
                        .dy = dy.matrix(),
                        .gate = half(up, 0),
                        .up = half(up, F),
                        .row_stride = stride});
  });
  return {y.bytes(), d.bytes()};
}

inline std::vector<WideBytes> sums_of_rows(const WidePlace& place, bool far) {
  constexpr int64_t C = 40;
  const int64_t stride = stride_of(far, C);
  WideMemory dy(place, DType::bf16, R, C, stride), db(place, DType::f32, 1, C, C);
  dy.fill(1);
  run_wide(place, [&](Stream& s, Arena& scratch) {
    bias_backward(s, scratch,
                  {.db = db.as({C}), .dy = dy.matrix(), .accumulate = false, .dy_stride = stride});
  });
  return {db.bytes()};
}

// A product of few rows, which no library computes on the CPU.
inline std::vector<WideBytes> products(const WidePlace& place, bool far) {
  constexpr int64_t N = 32, K = 48;
  const int64_t a_stride = stride_of(far, K), c_stride = stride_of(far, N);
  WideMemory a(place, DType::bf16, R, K, a_stride), b(place, DType::bf16, N, K, K),
      c(place, DType::bf16, R, N, c_stride), addend(place, DType::bf16, R, N, c_stride);
  a.fill(1), b.fill(2), addend.fill(3);
  run_wide(place, [&](Stream& s, Arena& scratch) {
    gemm(s, scratch,
         {.c = c.matrix(),
          .a = a.matrix(),
          .b = b.matrix(),
          .addend = addend.matrix(),
          .transpose_b = true,
          .a_stride = a_stride,
          .c_stride = c_stride});
  });
  return {c.bytes()};
}

// Rows of logits of which only the first columns are valid, so that a loss reads no others.
inline std::vector<WideBytes> losses(const WidePlace& place, bool far) {
  constexpr int64_t V = 40;
  const int64_t columns = stride_of(far, V);
  WideMemory logits(place, DType::f32, R, V, columns), loss(place, DType::f32, 1, R, R),
      weights(place, DType::f32, 1, R, R), targets(place, DType::i32, 1, R, R);
  logits.fill(1), weights.fill(2), targets.set({3, -100, 39, 0, 20});
  run_wide(place, [&](Stream& s, Arena&) {
    cross_entropy_forward(s, {.loss = loss.as({R}),
                              .logits = logits.as({R, columns}),
                              .targets = targets.as({R}),
                              .target_weights = weights.as({R}),
                              .valid_vocab = V});
  });
  return {loss.bytes()};
}

inline std::vector<WideBytes> decoded(const WidePlace& place, bool far) {
  constexpr int64_t C = 64;
  const int64_t stride = stride_of(far, C);
  WideMemory codes(place, DType::u8, 1, R * C / 2, R * C / 2), absmax(place, DType::f32, 1, R, R),
      table(place, DType::f32, 1, 16, 16), y(place, DType::bf16, R, C, stride);
  for (int64_t i = 0; i < R * C / 2; ++i) codes.row(0)[i] = static_cast<char>(i * 29);
  absmax.fill(1), table.fill(2);
  run_wide(place, [&](Stream& s, Arena&) {
    dequantize_four_bit(s, {.y = y.matrix(),
                            .w = {.codes = codes.as({R * C / 2}),
                                  .absmax = absmax.as({R}),
                                  .table = table.as({16}),
                                  .block = C,
                                  .shape = {R, C}},
                            .y_stride = stride});
  });
  return {y.bytes()};
}

// One document of two tokens and one of three, of heads in rows that have very many.
inline std::vector<WideBytes> attention(const WidePlace& place, DType dtype, bool far) {
  constexpr int64_t D = 64, Hq = 2, Hkv = 1;
  const int64_t q_heads = far ? kFarStride / D : Hq, k_heads = far ? kFarStride / D : Hkv;
  const auto of_q = [&] { return WideMemory(place, dtype, R, Hq * D, q_heads * D); };
  const auto of_k = [&] { return WideMemory(place, dtype, R, Hkv * D, k_heads * D); };
  WideMemory q = of_q(), k = of_k(), v = of_k(), o = of_q(), grad_o = of_q(), dq = of_q(), dk = of_k(),
             dv = of_k();
  WideMemory lse(place, DType::f32, Hq, R, R), ends(place, DType::i32, 1, 3, 3);
  q.fill(1), k.fill(2), v.fill(3), grad_o.fill(4), ends.set({0, 2, R});
  const auto queries = [&](const WideMemory& x) { return Heads(x.as({R, q_heads, D}), 0, Hq); };
  const auto keys = [&](const WideMemory& x) { return Heads(x.as({R, k_heads, D}), 0, Hkv); };
  run_wide(place, [&](Stream& s, Arena& scratch) {
    attention_forward(s, scratch,
                      {.o = queries(o),
                       .lse = lse.matrix(),
                       .q = queries(q),
                       .k = keys(k),
                       .v = keys(v),
                       .mask = {.cu_seqlens = ends.as({3})},
                       .scale = 0.125f});
    attention_backward(s, scratch,
                       {.dq = queries(dq),
                        .dk = keys(dk),
                        .dv = keys(dv),
                        .grad_o = queries(grad_o),
                        .q = queries(q),
                        .k = keys(k),
                        .v = keys(v),
                        .o = queries(o),
                        .lse = lse.matrix(),
                        .mask = {.cu_seqlens = ends.as({3})},
                        .scale = 0.125f});
  });
  return {o.bytes(), lse.bytes(), dq.bytes(), dk.bytes(), dv.bytes()};
}

}  // namespace wide

inline std::vector<WideCase> wide_cases() {
  const auto of_heads = [](DType dtype) {
    return [dtype](const WidePlace& place, bool far) { return wide::attention(place, dtype, far); };
  };
  return {{"cast, place and dropout", wide::casts},
          {"gather_rows and scatter_rows", wide::rows_by_number},
          {"embedding", wide::tables},
          {"rmsnorm and layernorm", wide::norms},
          {"rope and qk_norm", wide::rotations},
          {"swiglu", wide::gates},
          {"bias_backward", wide::sums_of_rows},
          {"gemm", wide::products},
          {"cross_entropy", wide::losses},
          {"four_bit", wide::decoded},
          {"attention in f32", of_heads(DType::f32)},
          {"attention in bf16", of_heads(DType::bf16)}};
}

}  // namespace flatshard::test
