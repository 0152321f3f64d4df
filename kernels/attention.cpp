#include "kernels/attention.h"

#include <atomic>
#include <optional>

#include "build_config.h"
#include "kernels/attention_backward.h"
#include "kernels/attention_forward.h"
#include "kernels/attention_one_pass.h"
#include "kernels/attention_sm90.h"
#include "kernels/op.h"

namespace flatshard {
namespace {

std::atomic<AttentionTier> tier_in_use{AttentionTier::newest};

void check_heads(const char* op, const char* name, const Heads& x, const Heads& like) {
  check(x.of.shape.rank() == 3 && x.of.dtype == like.of.dtype && x.head_size() == like.head_size(), op, ": ",
        name, " is ", x.of.dtype, " ", x.of.shape, ", must be (rows, heads, ", like.head_size(), ") ",
        like.of.dtype);
  check(x.first >= 0 && x.count >= 1 && x.first + x.count <= x.of.shape[1], op, ": ", name, " is heads [",
        x.first, ", ", x.first + x.count, ") of ", x.of.shape);
  check(x.rows() == like.rows() && x.count == like.count, op, ": ", name, " is ", x.rows(), " rows of ",
        x.count, " heads, must be ", like.rows(), " of ", like.count);
}

void check_mask(const char* op, const AttentionMask& mask) {
  for (const Tensor& boundaries : {mask.cu_seqlens, cpu::key_boundaries(mask)})
    check(boundaries.dtype == DType::i32 && boundaries.shape.rank() == 1 &&
              boundaries.shape == mask.cu_seqlens.shape && !boundaries.empty(),
          op, ": boundaries are ", boundaries.dtype, " ", boundaries.shape,
          ", must be i32 (documents + 1), of equal length for queries and keys");
  check(mask.window >= 0 && (mask.causal || mask.window == 0), op, ": window is ", mask.window,
        ", must be 0 (none), or positive with causal attention");
}

template <class Args>
void check_attention(const char* op, const Args& a) {
  check(a.q.of.shape.rank() == 3 && a.q.head_size() >= 1, op, ": q is ", a.q.of.shape,
        ", must be (rows, heads, head size)");
  check_heads(op, "q", a.q, a.q);
  check_heads(op, "o", a.o, a.q);
  Heads keys = a.q;
  keys.of.shape = {a.k.rows(), a.k.count, a.q.head_size()};
  keys.count = a.k.count;
  check_heads(op, "k", a.k, keys);
  check_heads(op, "v", a.v, keys);
  check(a.q.rows() <= kMostAttentionRows && a.k.rows() <= kMostAttentionRows, op, ": ", a.q.rows(),
        " queries and ", a.k.rows(), " keys, must be at most ", kMostAttentionRows, " each");
  check(a.q.count % a.k.count == 0, op, ": ", a.q.count, " query heads, must be a multiple of the ",
        a.k.count, " key heads");
  check(a.lse.dtype == DType::f32 && a.lse.size() == a.q.count * a.q.rows(), op, ": lse is ", a.lse.dtype,
        " ", a.lse.shape, ", must be f32 (", a.q.count, ", ", a.q.rows(), ")");
  check_mask(op, a.mask);
  check(a.softcap >= 0, op, ": softcap is ", a.softcap, ", must be 0 (none) or positive");
  check(!a.mask.cu_seqlens_kv.empty() || a.k.rows() == a.q.rows(), op, ": ", a.k.rows(), " keys and ",
        a.q.rows(), " queries: numbers that differ need cu_seqlens_kv");
}

void check_boundaries(const char* op, const char* name, const Tensor& boundaries, int64_t rows) {
  const int32_t* at = boundaries.as<int32_t>();
  const int64_t last = boundaries.size() - 1;
  check(at[0] == 0, op, ": ", name, " starts with ", at[0], ", must start with 0");
  for (int64_t i = 0; i < last; ++i)
    check(at[i] <= at[i + 1], op, ": ", name, " decreases from ", at[i], " to ", at[i + 1], " at index ",
          i + 1);
  check(at[last] == rows, op, ": ", name, " ends with ", at[last], ", must end with ", rows,
        ", the number of rows");
}

template <class Args>
void check_documents(const char* op, const Args& a) {
  check_boundaries(op, "cu_seqlens", a.mask.cu_seqlens, a.q.rows());
  check_boundaries(op, "cu_seqlens_kv", cpu::key_boundaries(a.mask), a.k.rows());
}

// The call of an attention op, with all sizes on which its time depends.
template <class Args>
OpCall call_of(const char* op, const Args& a) {
  return {.name = op,
          .shape = {a.q.rows(), a.q.count, a.k.rows(), a.k.count, a.q.head_size(),
                    cpu::document_count(a.mask), a.mask.causal ? 1 + a.mask.window : 0},
          .dtype = a.q.of.dtype,
          .flops = flops(a),
          .bytes = min_bytes(a)};
}

}  // namespace

void attention_forward(Stream& stream, Arena& scratch, const AttentionForward& a) {
  check_attention("attention_forward", a);
  if (stream.recorded()) stream.note(call_of("attention_forward", a));
  if (stream.device().is_cuda()) {
    if (stream.planning()) return;
    if constexpr (kCudaBuilt) return cuda::attention_forward(stream, a);
  }
  const ArenaScope scope(scratch);
  tile::visit_operand(a.q.of.dtype, [&]<class T>() {
    const int64_t D = a.q.head_size();
    const cpu::ForwardScratch own{
        .k = cpu::packed_along<T>(scratch, a.k, a.mask),
        .v = cpu::packed_down<T>(scratch, a.v, a.mask),
        .workers = scratch.alloc(DType::i32, {thread_count(), cpu::ForwardWorker<T>::size(D)})};
    if (stream.planning()) return;
    stream.run("attention_forward", [a, own] {
      check_documents("attention_forward", a);
      cpu::forward<T>(a, own);
    });
  });
}

void attention_backward(Stream& stream, Arena& scratch, const AttentionBackward& a) {
  check_attention("attention_backward", a);
  check_heads("attention_backward", "do", a.grad_o, a.q);
  check_heads("attention_backward", "dq", a.dq, a.q);
  check_heads("attention_backward", "dk", a.dk, a.k);
  check_heads("attention_backward", "dv", a.dv, a.v);
  if (stream.recorded()) stream.note(call_of("attention_backward", a));
  const ArenaScope scope(scratch);
  if (stream.device().is_cuda()) {
    const Tensor terms = scratch.alloc(DType::f32, {2, a.q.count, a.q.rows()});
    std::optional<OnePassScratch> one_pass;
    if (is_one_pass(a)) one_pass = OnePassScratch::take(scratch, a);
    if (stream.planning()) return;
    if constexpr (kCudaBuilt)
      return cuda::attention_backward(stream, a, terms, one_pass ? &*one_pass : nullptr);
  }
  tile::visit_operand(a.q.of.dtype, [&]<class T>() {
    const int64_t D = a.q.head_size(), rows = cpu::packed_rows(a.k.rows(), cpu::document_count(a.mask));
    const Shape sums{a.q.count, rows, tile::round_up(D, simd::kWidth)};
    const cpu::BackwardScratch own{
        .k_along = cpu::packed_along<T>(scratch, a.k, a.mask),
        .v_along = cpu::packed_along<T>(scratch, a.v, a.mask),
        .k_down = cpu::packed_down<T>(scratch, a.k, a.mask),
        .dk = scratch.alloc(DType::f32, sums),
        .dv = scratch.alloc(DType::f32, sums),
        .workers = scratch.alloc(DType::i32, {thread_count(), cpu::BackwardWorker<T>::size(D)})};
    if (stream.planning()) return;
    stream.run("attention_backward", [a, own] {
      check_documents("attention_backward", a);
      cpu::backward<T>(a, own);
    });
  });
}

void use_attention_tier(AttentionTier tier) { tier_in_use = tier; }
AttentionTier attention_tier() { return tier_in_use; }

bool is_one_pass(const AttentionBackward& a) {
  return attention_tier() == AttentionTier::one_pass && size_of(a.q.of.dtype) == 2 &&
         is_one_pass_head(a.q.head_size()) && a.mask.causal && a.softcap == 0;
}

OnePassScratch OnePassScratch::take(Arena& scratch, const AttentionBackward& a) {
  const int64_t Hq = a.q.count, D = a.q.head_size(), rows = a.q.rows();
  const int64_t tiles = rows / one_pass_tile_rows(D) + cpu::document_count(a.mask);
  return {.dq = scratch.alloc(DType::f32, {Hq, D > kOnePassColumns ? 2 : 1, rows, kOnePassColumns}),
          .counts = scratch.alloc(DType::i32, {Hq * tiles * kOnePassHalves + 1})};
}

std::string describe_attention_tier(DType dtype, int64_t head_size) {
  if constexpr (kCudaBuilt)
    if (size_of(dtype) == 2 && head_size % 8 == 0 && cuda::has_sm90())
      return head_size <= 128 ? "sm_90" : "sm_90 forward, sm_80 backward";
  return "sm_80";
}

double min_bytes(const AttentionForward& a) { return bytes_of(a.o, a.q, a.k, a.v, a.lse); }
double min_bytes(const AttentionBackward& a) { return 2 * bytes_of(a.q, a.k, a.v, a.o) + bytes_of(a.lse); }

namespace {

// 4 D operations for each unmasked pair of a query and a key, per head.
double forward_flops(const Heads& q, const Heads& k, const AttentionMask& mask) {
  const double documents = std::max(1.0, static_cast<double>(mask.cu_seqlens.size() - 1));
  const double queries = static_cast<double>(q.rows()) / documents,
               keys = static_cast<double>(k.rows()) / documents;
  // A causal query attends to all keys before the first query, and on average to half of the others.
  const double causal = mask.causal ? std::max(0.0, keys - queries / 2) : keys;
  const double window = static_cast<double>(mask.window);
  const double keys_per_query =
      mask.window > 0 && window < keys ? std::min(causal, window * (1 - window / (2 * keys))) : causal;
  return 4.0 * static_cast<double>(q.count * q.head_size() * q.rows()) * keys_per_query;
}

}  // namespace

double flops(const AttentionForward& a) { return forward_flops(a.q, a.k, a.mask); }
double flops(const AttentionBackward& a) { return 2.5 * forward_flops(a.q, a.k, a.mask); }

}  // namespace flatshard
