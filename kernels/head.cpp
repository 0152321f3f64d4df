#include "kernels/head.h"

#include <algorithm>
#include <tuple>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
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

// The number of columns of the logits. On a GPU it is a multiple of 8, since products and losses of unaligned
// rows are slow there, except with adapters, which expect rows of V.
template <class Args>
int64_t logit_columns(const Stream& stream, const Args& a) {
  const int64_t V = a.w.shape[0];
  return stream.device().is_cuda() && !a.add_to_logits ? (V + 7) / 8 * 8 : V;
}

// Allocates logits whose padding columns are zero and whose other columns are uninitialized.
Tensor alloc_logits(Stream& stream, Arena& scratch, int64_t rows, int64_t columns, int64_t V) {
  const Tensor logits = scratch.alloc(DType::f32, {rows, columns});
  if (columns == V) return logits;
  const ArenaScope scope(scratch);
  const Tensor zeros = scratch.alloc(DType::f32, {rows, columns - V});
  zero(stream, zeros);
  place(stream, {.y = logits, .x = zeros, .first = V});
  return logits;
}

// The logits without padding columns; the row stride does not change.
Tensor unpadded(const Tensor& logits, int64_t V) { return packed_columns(logits, 0, {logits.shape[0], V}); }

// Tokens [begin, end) of a tensor with C elements per token.
Tensor tokens_of(const Tensor& t, int64_t C, int64_t begin, int64_t end) {
  return t.view({t.size() / C, C}).slice(begin, end);
}
Tensor tokens_of(const Tensor& t, int64_t begin, int64_t end) { return t.view({t.size()}).slice(begin, end); }

}  // namespace

void head_loss_forward(Stream& stream, Arena& scratch, const HeadLossForward& a) {
  check_head("head_loss_forward", a);
  if (a.x.empty()) return;
  const int64_t V = a.w.shape[0], C = a.w.shape[1], columns = logit_columns(stream, a);
  const ArenaScope scope(scratch);
  const Tensor logits = alloc_logits(stream, scratch, chunk_of(a), columns, V);
  // Before the first chunk, so that the Error has the index of the token in the call and nothing is written.
  check_targets(stream, a.targets, valid_vocab_of(a));
  for_each_chunk(stream, a, [&](int64_t begin, int64_t end) {
    const Tensor chunk_logits = logits.slice(0, end - begin);
    gemm(stream, scratch,
         {.c = unpadded(chunk_logits, V),
          .a = tokens_of(a.x, C, begin, end),
          .b = a.w,
          .transpose_b = true,
          .tf32 = a.tf32,
          .c_stride = columns});
    if (a.add_to_logits)
      a.add_to_logits({.first = begin, .x = tokens_of(a.x, C, begin, end), .logits = chunk_logits});
    if (a.softcap > 0) softcap(stream, {.y = chunk_logits, .x = chunk_logits, .cap = a.softcap});
    cross_entropy_forward(stream, {.loss = tokens_of(a.loss, begin, end),
                                   .logits = chunk_logits,
                                   .targets = tokens_of(a.targets, begin, end),
                                   .target_weights = tokens_of(a.target_weights, begin, end),
                                   .valid_vocab = valid_vocab_of(a)});
  });
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
  const int64_t V = a.w.shape[0], C = a.w.shape[1], chunk = chunk_of(a), columns = logit_columns(stream, a);
  const ArenaScope scope(scratch);
  const Tensor logits = alloc_logits(stream, scratch, chunk, columns, V);
  const Tensor dlogits = a.x.dtype == DType::f32 ? logits : scratch.alloc(a.x.dtype, {chunk, columns});
  const Tensor weighted_losses = a.weigh ? scratch.alloc(DType::f32, {chunk}) : Tensor{};  // never read
  // Before the first chunk, so that the Error has the index of the token in the call and nothing is written.
  check_targets(stream, a.targets, valid_vocab_of(a));
  for_each_chunk(stream, a, [&](int64_t begin, int64_t end) {
    const Tensor chunk_logits = logits.slice(0, end - begin), chunk_dlogits = dlogits.slice(0, end - begin);
    const Tensor x = tokens_of(a.x, C, begin, end), dx = tokens_of(a.dx, C, begin, end);
    const HeadChunk work{.first = begin, .x = x, .logits = chunk_logits, .dlogits = chunk_dlogits, .dx = dx};
    gemm(stream, scratch,
         {.c = unpadded(chunk_logits, V),
          .a = x,
          .b = a.w,
          .transpose_b = true,
          .tf32 = a.tf32,
          .c_stride = columns});
    if (a.add_to_logits) a.add_to_logits(work);
    if (a.softcap > 0) softcap(stream, {.y = chunk_logits, .x = chunk_logits, .cap = a.softcap});
    const Tensor loss = tokens_of(a.loss, begin, end), targets = tokens_of(a.targets, begin, end),
                 weights = tokens_of(a.target_weights, begin, end);
    if (a.weigh) {
      cross_entropy_forward(stream, {.loss = loss,
                                     .logits = chunk_logits,
                                     .targets = targets,
                                     .target_weights = weights,
                                     .valid_vocab = valid_vocab_of(a)});
      a.weigh(work);
    }
    cross_entropy_backward(stream,
                           {.dlogits = chunk_dlogits,
                            .loss = a.weigh ? weighted_losses.slice(0, end - begin) : loss,
                            .logits = chunk_logits,
                            .targets = targets,
                            .target_weights = a.weigh ? tokens_of(a.gradient_weights, begin, end) : weights,
                            .valid_vocab = valid_vocab_of(a),
                            .softcap = a.softcap});
    // dw comes first: after the last chunk its reduction over ranks may start while dx is computed.
    if (!a.dw.empty())
      gemm(stream, scratch,
           {.c = a.dw,
            .a = unpadded(chunk_dlogits, V),
            .b = x,
            .transpose_a = true,
            .accumulate = a.accumulate || begin > 0,
            .tf32 = a.tf32,
            .a_stride = columns});
    gemm(stream, scratch,
         {.c = dx, .a = unpadded(chunk_dlogits, V), .b = a.w, .tf32 = a.tf32, .a_stride = columns});
    if (a.add_to_gradients) a.add_to_gradients(work);
  });
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
