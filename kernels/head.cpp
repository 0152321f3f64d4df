#include "kernels/head.h"

#include <algorithm>
#include <tuple>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/head_exponentials.h"
#include "kernels/op.h"
#include "kernels/packed.h"

namespace flatshard {
namespace {

template <class Args>
void check_head(const char* op, const Args& a) {
  check(a.w.shape.rank() == 2 && a.w.shape[-1] == a.x.shape[-1] && a.w.dtype == a.x.dtype, op, ": w is ",
        a.w.dtype, " ", a.w.shape, ", x is ", a.x.dtype, " ", a.x.shape,
        "; w must be (V, C) with the dtype and last dimension of x");
  for (const auto& [name, t, dtype] : {std::tuple{"loss", a.loss, DType::f32},
                                       {"targets", a.targets, DType::i32},
                                       {"target_weights", a.target_weights, DType::f32}})
    check_each(op, name, t, dtype, a.x.rows(), "tokens");
  check(a.chunk >= 0, op, ": chunk is ", a.chunk, ", must be at least 0");
}

template <class Args>
int64_t chunk_of(const Args& a) {
  return std::min(a.chunk > 0 ? a.chunk : kHeadChunk, a.x.rows());
}

template <class Args>
int64_t valid_vocab_of(const Args& a) {
  return a.valid_vocab > 0 ? a.valid_vocab : a.w.shape[0];
}

// Calls work(begin, end) for each chunk of tokens. Planning visits only the first and the last chunk, since
// there are only two sizes, unless the calls are recorded.
template <class Args, class Work>
void for_each_chunk(const Stream& stream, const Args& a, Work&& work) {
  const int64_t N = a.x.rows(), chunk = chunk_of(a), last = (N - 1) / chunk * chunk;
  for (int64_t begin = 0; begin < N; begin += chunk) {
    work(begin, std::min(N, begin + chunk));
    if (stream.planning() && !stream.recorded()) begin = std::max(begin, last - chunk);
  }
}

// The weight as products take it. On a GPU products are slow if an extent is not a multiple of 8, so the last
// V % 8 rows are multiplied by themselves, as the first ones of `rest`, 8 rows whose others are zero. Logits
// then have padding columns. With adapters, which expect rows of V logits, the weight stays whole.
struct HeadWeight {
  Tensor first;   // (V, C), or (V / 8 * 8, C)
  Tensor rest{};  // (8, C), or empty

  int64_t logit_columns() const { return first.shape[0] + (rest.empty() ? 0 : rest.shape[0]); }
};

template <class Args>
HeadWeight split_weight(Stream& stream, Arena& scratch, const Args& a) {
  constexpr int64_t kUnit = 8;
  const int64_t V = a.w.shape[0], C = a.w.shape[1], rest = V % kUnit;
  if (rest == 0 || !stream.device().is_cuda() || a.add_to_logits) return {a.w};
  const HeadWeight w{a.w.slice(0, V - rest), scratch.alloc(a.w.dtype, {kUnit, C})};
  copy(stream, w.rest.slice(0, rest), a.w.slice(V - rest, V));
  zero(stream, w.rest.slice(rest, kUnit));
  return w;
}

// Columns [begin, end) of a matrix whose rows stay where they are.
Tensor columns_of(const Tensor& matrix, int64_t begin, int64_t end) {
  return packed_columns(matrix, begin, {matrix.shape[0], end - begin});
}

// logits = x w^T
void multiply_logits(Stream& stream, Arena& scratch, const Tensor& logits, const Tensor& x,
                     const HeadWeight& w, bool tf32) {
  const int64_t columns = logits.shape[1], first = w.first.shape[0];
  const auto multiply = [&](int64_t begin, int64_t end, const Tensor& rows) {
    gemm(stream, scratch,
         {.c = columns_of(logits, begin, end),
          .a = x,
          .b = rows,
          .transpose_b = true,
          .tf32 = tf32,
          .c_stride = columns});
  };
  multiply(0, first, w.first);
  if (!w.rest.empty()) multiply(first, columns, w.rest);
}

// dw += or = dlogits^T x
void multiply_dw(Stream& stream, Arena& scratch, const Tensor& dw, const Tensor& dlogits, const Tensor& x,
                 const HeadWeight& w, bool accumulate, bool tf32) {
  const int64_t V = dw.shape[0], first = w.first.shape[0];
  const auto multiply = [&](int64_t begin, int64_t end) {
    gemm(stream, scratch,
         {.c = dw.slice(begin, end),
          .a = columns_of(dlogits, begin, end),
          .b = x,
          .transpose_a = true,
          .accumulate = accumulate,
          .tf32 = tf32,
          .a_stride = dlogits.shape[1]});
  };
  multiply(0, first);
  if (first < V) multiply(first, V);
}

// dx = dlogits w. The two products of a split weight are added in fp32.
void multiply_dx(Stream& stream, Arena& scratch, const Tensor& dx, const Tensor& dlogits, const HeadWeight& w,
                 bool tf32) {
  const int64_t columns = dlogits.shape[1], first = w.first.shape[0];
  const ArenaScope scope(scratch);
  const Tensor sum = w.rest.empty() || dx.dtype == DType::f32 ? dx : scratch.alloc(DType::f32, dx.shape);
  const auto multiply = [&](int64_t begin, int64_t end, const Tensor& rows) {
    gemm(stream, scratch,
         {.c = sum,
          .a = columns_of(dlogits, begin, end),
          .b = rows,
          .accumulate = begin > 0,
          .tf32 = tf32,
          .a_stride = columns});
  };
  multiply(0, first, w.first);
  if (w.rest.empty()) return;
  multiply(first, columns, w.rest);
  if (sum.dtype != dx.dtype) cast(stream, {.y = dx, .x = sum});
}

// Tokens [begin, end) of a tensor with C elements per token.
Tensor tokens_of(const Tensor& t, int64_t C, int64_t begin, int64_t end) {
  return t.view({t.size() / C, C}).slice(begin, end);
}
Tensor tokens_of(const Tensor& t, int64_t begin, int64_t end) { return t.view({t.size()}).slice(begin, end); }

// The rows of a chunk.
struct ChunkRows {
  int64_t begin, end;
  Tensor x, loss, targets, weights;

  template <class Args>
  ChunkRows(const Args& a, int64_t first, int64_t last)
      : begin(first),
        end(last),
        x(tokens_of(a.x, a.w.shape[1], first, last)),
        loss(tokens_of(a.loss, first, last)),
        targets(tokens_of(a.targets, first, last)),
        weights(tokens_of(a.target_weights, first, last)) {}

  int64_t count() const { return end - begin; }
};

// The logits of a chunk in fp32, and their losses and gradients by cross_entropy.h.
template <class Args>
class Logits {
 public:
  Logits(Stream& stream, Arena& scratch, const Args& a, bool backward)
      : stream_(stream),
        scratch_(scratch),
        a_(a),
        weight_(split_weight(stream, scratch, a)),
        logits_(scratch.alloc(DType::f32, {chunk_of(a), weight_.logit_columns()})),
        dlogits_(!backward                 ? Tensor{}
                 : a.x.dtype == DType::f32 ? logits_
                                           : scratch.alloc(a.x.dtype, logits_.shape)) {}

  const HeadWeight& weight() const { return weight_; }
  Tensor gradients(const ChunkRows& rows) const { return dlogits_.slice(0, rows.count()); }
  HeadChunk chunk(const ChunkRows& rows) const {
    return {.first = rows.begin, .x = rows.x, .logits = logits_.slice(0, rows.count())};
  }
  void compute(const ChunkRows& rows) {
    const HeadChunk work = chunk(rows);
    multiply_logits(stream_, scratch_, work.logits, rows.x, weight_, a_.tf32);
    if (a_.add_to_logits) a_.add_to_logits(work);
    if (a_.softcap > 0) softcap(stream_, {.y = work.logits, .x = work.logits, .cap = a_.softcap});
  }
  void loss(const ChunkRows& rows) {
    cross_entropy_forward(stream_, {.loss = rows.loss,
                                    .logits = logits_.slice(0, rows.count()),
                                    .targets = rows.targets,
                                    .target_weights = rows.weights,
                                    .valid_vocab = valid_vocab_of(a_)});
  }
  void gradient(const ChunkRows& rows) {
    cross_entropy_backward(stream_, {.dlogits = gradients(rows),
                                     .loss = rows.loss,
                                     .logits = logits_.slice(0, rows.count()),
                                     .targets = rows.targets,
                                     .target_weights = rows.weights,
                                     .valid_vocab = valid_vocab_of(a_),
                                     .softcap = a_.softcap});
  }

 private:
  Stream& stream_;
  Arena& scratch_;
  const Args& a_;
  HeadWeight weight_;
  Tensor logits_, dlogits_;
};

// The same from exponentials, which the product writes in place of logits (head_exponentials.h).
template <class Args>
class Exponentials {
 public:
  Exponentials(Stream& stream, Arena& scratch, const Args& a, bool backward)
      : stream_(stream), a_(a), weight_{a.w} {
    const int64_t V = a.w.shape[0], chunk = chunk_of(a);
    if (backward) exps_ = scratch.alloc(a.x.dtype, {chunk, HeadExponentials::columns_of(V)});
    tiles_ = scratch.alloc(DType::f32, {chunk, HeadExponentials::tiles_of(V), 2});
    target_logits_ = scratch.alloc(DType::f32, {chunk});
  }

  const HeadWeight& weight() const { return weight_; }
  Tensor gradients(const ChunkRows& rows) const { return exps_.slice(0, rows.count()); }
  HeadChunk chunk(const ChunkRows& rows) const { return {.first = rows.begin, .x = rows.x, .logits = {}}; }
  void compute(const ChunkRows& rows) { head_exponentials(stream_, of(rows)); }
  void loss(const ChunkRows& rows) { find_loss(rows, false); }
  void gradient(const ChunkRows& rows) { find_loss(rows, true); }

 private:
  HeadExponentials of(const ChunkRows& rows) const {
    const auto part = [&](const Tensor& t) { return t.empty() ? t : t.slice(0, rows.count()); };
    return {.exps = part(exps_),
            .tiles = part(tiles_),
            .target_logits = part(target_logits_),
            .x = rows.x,
            .w = a_.w,
            .targets = rows.targets,
            .valid_vocab = valid_vocab_of(a_)};
  }
  void find_loss(const ChunkRows& rows, bool gradient) {
    head_exponentials_loss(
        stream_, {.loss = rows.loss, .target_weights = rows.weights, .of = of(rows), .gradient = gradient});
  }

  Stream& stream_;
  const Args& a_;
  HeadWeight weight_;
  Tensor exps_, tiles_, target_logits_;
};

// Whether the loss comes from exponentials: not with what changes logits after the product.
template <class Args>
bool takes_exponentials(const Stream& stream, const Args& a) {
  return product_kernels() == ProductKernels::own && stream.device().is_cuda() && size_of(a.x.dtype) == 2 &&
         a.w.shape[1] % HeadExponentials::kUnit == 0 && a.softcap == 0 && !a.add_to_logits;
}

template <class Of>
void forward(Stream& stream, Arena& scratch, const HeadLossForward& a) {
  Of logits(stream, scratch, a, false);
  // Before the first chunk, so that the Error has the index of the token in the call and nothing is written.
  check_targets(stream, a.targets, valid_vocab_of(a));
  for_each_chunk(stream, a, [&](int64_t begin, int64_t end) {
    const ChunkRows rows(a, begin, end);
    logits.compute(rows);
    logits.loss(rows);
  });
}

template <class Of>
void backward(Stream& stream, Arena& scratch, const HeadLossBackward& a) {
  Of logits(stream, scratch, a, true);
  const Tensor weighted_losses = a.weigh ? scratch.alloc(DType::f32, {chunk_of(a)}) : Tensor{};  // never read
  check_targets(stream, a.targets, valid_vocab_of(a));  // as in the forward pass
  for_each_chunk(stream, a, [&](int64_t begin, int64_t end) {
    ChunkRows rows(a, begin, end);
    HeadChunk work = logits.chunk(rows);
    work.dlogits = logits.gradients(rows);
    work.dx = tokens_of(a.dx, a.w.shape[1], begin, end);
    logits.compute(rows);
    if (a.weigh) {
      logits.loss(rows);
      a.weigh(work);
      rows.loss = weighted_losses.slice(0, rows.count());
      rows.weights = tokens_of(a.gradient_weights, begin, end);
    }
    logits.gradient(rows);
    // dw comes first: after the last chunk its reduction over ranks may start while dx is computed.
    if (!a.dw.empty())
      multiply_dw(stream, scratch, a.dw, work.dlogits, rows.x, logits.weight(), a.accumulate || begin > 0,
                  a.tf32);
    multiply_dx(stream, scratch, work.dx, work.dlogits, logits.weight(), a.tf32);
    if (a.add_to_gradients) a.add_to_gradients(work);
  });
}

}  // namespace

void head_loss_forward(Stream& stream, Arena& scratch, const HeadLossForward& a) {
  check_head("head_loss_forward", a);
  if (a.x.empty()) return;
  const ArenaScope scope(scratch);
  takes_exponentials(stream, a) ? forward<Exponentials<HeadLossForward>>(stream, scratch, a)
                                : forward<Logits<HeadLossForward>>(stream, scratch, a);
}

void head_loss_backward(Stream& stream, Arena& scratch, const HeadLossBackward& a) {
  check_head("head_loss_backward", a);
  check_like("head_loss_backward", "dx", a.dx, "x", a.x);
  check(a.dw.empty() || (a.dw.dtype == DType::f32 && a.dw.shape == a.w.shape), "head_loss_backward: dw is ",
        a.dw.dtype, " ", a.dw.shape, ", must be f32 ", a.w.shape, " like w, or empty");
  if (a.weigh)
    check_each("head_loss_backward", "gradient_weights", a.gradient_weights, DType::f32, a.x.rows(),
               "tokens");
  if (a.x.empty()) return;
  const ArenaScope scope(scratch);
  takes_exponentials(stream, a) ? backward<Exponentials<HeadLossBackward>>(stream, scratch, a)
                                : backward<Logits<HeadLossBackward>>(stream, scratch, a);
}

double min_bytes(const HeadLossForward& a) { return bytes_of(a.x, a.w, a.loss, a.targets, a.target_weights); }
double min_bytes(const HeadLossBackward& a) {
  return bytes_of(a.x, a.dx, a.w, a.dw, a.loss, a.targets, a.target_weights) +
         (a.accumulate ? bytes_of(a.dw) : 0);
}
double flops(const HeadLossForward& a) {
  return 2.0 * static_cast<double>(a.x.size()) * static_cast<double>(a.w.shape[0]);
}
double flops(const HeadLossBackward& a) {
  const double products = a.dw.empty() ? 2.0 : 3.0;
  return 2.0 * products * static_cast<double>(a.x.size()) * static_cast<double>(a.w.shape[0]);
}

}  // namespace flatshard
