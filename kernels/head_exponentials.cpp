#include "kernels/head_exponentials.h"

#include "build_config.h"
#include "kernels/gemm_sm90.h"
#include "kernels/op.h"

namespace flatshard {
namespace {

void check_exponentials(const HeadExponentials& a) {
  const char* const op = "head_exponentials";
  const int64_t N = a.x.shape[0], C = a.x.shape[1], V = a.w.shape[0];
  check(a.w.shape == Shape({V, C}) && a.w.dtype == a.x.dtype && size_of(a.x.dtype) == 2, op, ": w is ",
        a.w.dtype, " ", a.w.shape, ", x is ", a.x.dtype, " ", a.x.shape,
        "; both must have 16 bits and as many columns");
  check(cuda::rows_are_aligned(a.x, C) && cuda::rows_are_aligned(a.w, C), op,
        ": rows of x and w must begin at multiples of 16 bytes; they have ", C, " columns");
  check(a.exps.empty() ||
            (a.exps.dtype == a.x.dtype && a.exps.shape == Shape({N, HeadExponentials::columns_of(V)})),
        op, ": exps are ", a.exps.dtype, " ", a.exps.shape, ", must be ", a.x.dtype, " (", N, ", ",
        HeadExponentials::columns_of(V), ")");
  check_elements(op, "tiles", a.tiles, DType::f32, N * HeadExponentials::tiles_of(V) * 2);
  check_each(op, "target_logits", a.target_logits, DType::f32, N, "tokens");
  check_each(op, "targets", a.targets, DType::i32, N, "tokens");
  check(a.valid_vocab >= 0 && a.valid_vocab <= V, op, ": valid_vocab is ", a.valid_vocab, ", must be in [0, ",
        V, "]");
}

void check_kernel(const Stream& stream) {
  check(has_own_products(stream.device()),
        "head_exponentials: it takes a GPU of sm_90 (Hopper) and a build "
        "with kernels for it");
}

// A product, as plans see it.
OpCall call_of(const HeadExponentials& a) {
  constexpr int64_t kTransposedB = 2;
  return {.name = "gemm",
          .shape = {a.x.shape[0], a.w.shape[0], a.x.shape[1], kTransposedB + kFlagOwn},
          .dtype = a.x.dtype,
          .flops = flops(a),
          .bytes = min_bytes(a)};
}

}  // namespace

void head_exponentials(Stream& stream, const HeadExponentials& a) {
  check_exponentials(a);
  if (stream.recorded()) stream.note(call_of(a));
  if (stream.planning() || a.x.empty()) return;
  check_kernel(stream);
  if constexpr (kCublasBuilt) cuda::head_exponentials_sm90(stream, a);
}

void head_exponentials_loss(Stream& stream, const HeadExponentialsLoss& a) {
  check_exponentials(a.of);
  const int64_t N = a.of.x.shape[0];
  check_each("head_exponentials_loss", "loss", a.loss, DType::f32, N, "tokens");
  check_each("head_exponentials_loss", "target_weights", a.target_weights, DType::f32, N, "tokens");
  check(!a.gradient || !a.of.exps.empty(), "head_exponentials_loss: a gradient takes exponentials");
  const char* const op = a.gradient ? "cross_entropy_backward" : "cross_entropy_forward";
  if (plans(stream, op, a, a.gradient ? a.of.exps : a.of.tiles) || a.of.x.empty()) return;
  check_kernel(stream);
  if constexpr (kCublasBuilt) cuda::head_exponentials_loss_sm90(stream, a);
}

double min_bytes(const HeadExponentials& a) { return bytes_of(a.x, a.w, a.exps, a.tiles, a.targets); }
double min_bytes(const HeadExponentialsLoss& a) {
  return bytes_of(a.loss, a.target_weights, a.of.tiles, a.of.target_logits, a.of.targets) +
         (a.gradient ? 2 * bytes_of(a.of.exps) : 0);
}
double flops(const HeadExponentials& a) {
  return 2.0 * static_cast<double>(a.x.size()) * static_cast<double>(a.w.shape[0]);
}
double flops(const HeadExponentialsLoss& a) {
  return static_cast<double>(2 * a.of.tiles.size()) +
         (a.gradient ? static_cast<double>(a.of.exps.size()) : 0);
}

}  // namespace flatshard
