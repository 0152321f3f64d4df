#pragma once
// The backward pass of attention on the CPU, one task per query head of a document. A task processes its
// blocks of queries in order and accumulates its own dk and dv; these are then summed over the query heads of
// each group.

#include <utility>

#include "kernels/attention_tile.h"

namespace flatshard::cpu {

struct BackwardScratch {
  Tensor k_along, v_along, k_down;  // (Hkv, words)
  Tensor dk, dv;                    // (Hq, packed rows, D rounded up) f32: the sums of each query head
  Tensor workers;                   // (threads, words)
};

template <class T>
struct BackwardWorker {
  Word *q_across, *do_across;                  // (words(D), kQueryBlock)
  Word *q_down, *do_down;                      // (words(kQueryBlock), D rounded up)
  float *scores, *dp;                          // (kKeyBlock, kQueryBlock)
  Word *p_along, *ds_along;                    // (kKeyBlock, words(kQueryBlock))
  Word* ds_down;                               // (words(kKeyBlock), kQueryBlock)
  float* dq;                                   // (kQueryBlock, D rounded up)
  float lse[kQueryBlock], delta[kQueryBlock];  // lse in base 2; delta = do o

  static constexpr int64_t kTile = kKeyBlock * kQueryBlock;
  static int64_t size(int64_t D) {
    return (2 * words<T>(D) + round_up(D, kWidth)) * kQueryBlock +
           2 * words<T>(kQueryBlock) * round_up(D, kWidth) + 2 * kTile + 3 * words<T>(kTile);
  }
  BackwardWorker(Word* data, int64_t D) {
    const auto take = [&](int64_t size) { return std::exchange(data, data + size); };
    const int64_t across = words<T>(D) * kQueryBlock, down = words<T>(kQueryBlock) * round_up(D, kWidth);
    q_across = take(across), do_across = take(across);
    q_down = take(down), do_down = take(down);
    scores = reinterpret_cast<float*>(take(kTile)), dp = reinterpret_cast<float*>(take(kTile));
    p_along = take(words<T>(kTile)), ds_along = take(words<T>(kTile)), ds_down = take(words<T>(kTile));
    dq = reinterpret_cast<float*>(take(kQueryBlock * round_up(D, kWidth)));
  }

  // Computes p and ds from scores and dp for queries [first, first + queries), rounded, in the layouts of the
  // products. kCapped: the scores are bounded by 1 / inverse_cap.
  template <bool kCapped>
  void differentiate(int64_t first, int64_t queries, int64_t keys, float scale, float inverse_cap) {
    for (int64_t i = first; i < first + queries; i += kWidth) {
      const Floats shift = -load(lse + i), drop = load(delta + i);
      for (int64_t j = 0; j < keys; j += 2) {
        Floats ds[2]{};
        for (int64_t odd = 0; odd < std::min<int64_t>(2, keys - j); ++odd) {
          const int64_t at = (j + odd) * kQueryBlock + i;
          const Floats s = load(scores + at), p = exp2(simd::fma(s, splat(scale), shift));
          ds[odd] = p * (load(dp + at) - drop);
          if constexpr (kCapped) {
            const Floats share = simd::max(splat(-1.0f), s * inverse_cap);  // finite for masked scores
            ds[odd] *= 1.0f - share * share;
          }
          tile::store_along<T>(p_along + words<T>(at), p);
          tile::store_along<T>(ds_along + words<T>(at), ds[odd]);
        }
        tile::store_down<T>(ds_down + words<T>(j) * kQueryBlock + i, kQueryBlock, ds[0], ds[1]);
      }
    }
  }
};

// The dot products x y of `count` rows, at most sixteen.
template <class T>
Floats row_dots(const T* x, int64_t x_stride, const T* y, int64_t y_stride, int64_t count, int64_t n) {
  Ints dots[kWidth]{};
  for (int64_t r = 0; r < count; ++r) {
    Floats dot{};
    simd::for_each_vector(n, [&](int64_t i, auto lanes) {
      dot = simd::fma(load(x + r * x_stride + i, lanes), load(y + r * y_stride + i, lanes), dot);
    });
    dots[r] = (Ints)dot;
  }
  tile::transpose(dots);
  Floats sum{};
  for (const Ints& lane : dots) sum = sum + (Floats)lane;
  return sum;
}

// Loads a block of queries: q and do in both layouts, lse, and delta = do o.
template <class T>
void load_queries(const AttentionBackward& a, BackwardWorker<T>& w, int64_t row, int64_t count,
                  int64_t head) {
  const int64_t D = a.q.head_size(), q_stride = a.q.stride(), do_stride = a.grad_o.stride();
  const T *q = a.q.at<T>(row, head), *grad_o = a.grad_o.at<T>(row, head), *o = a.o.at<T>(row, head);
  tile::pack_transposed(w.q_across, kQueryBlock, q, q_stride, count, D);
  tile::pack_transposed(w.do_across, kQueryBlock, grad_o, do_stride, count, D);
  tile::pack_down(w.q_down, q, q_stride, count, D);
  tile::pack_down(w.do_down, grad_o, do_stride, count, D);
  for (int64_t i = 0; i < count; i += kWidth) {
    const int lanes = static_cast<int>(std::min<int64_t>(kWidth, count - i));
    store(w.delta + i,
          row_dots(o + i * a.o.stride(), a.o.stride(), grad_o + i * do_stride, do_stride, lanes, D));
    const Floats lse = load(a.lse.as<float>() + head * a.q.rows() + row + i, lanes) * kLog2e;
    // An lse of infinity makes p = 2^(s - lse) zero in fully masked rows and past the last row.
    store(w.lse + i, simd::keep_lanes(lse == -kInfinity ? splat(kInfinity) : lse, lanes, kInfinity));
  }
}

// Writes dq of one block of queries of one head, and adds its contribution to dk and dv.
template <class T>
void backward_block(const AttentionBackward& a, const BackwardScratch& scratch, BackwardWorker<T>& w,
                    const Rows& queries, int64_t head) {
  const Documents q_documents(a.mask.cu_seqlens), documents(key_boundaries(a.mask));
  const int64_t document = queries.document, D = a.q.head_size(), width = round_up(D, kWidth);
  const int64_t rows = packed_rows(a.k.rows(), documents.count), packed_row = documents.packed_row(document);
  const int64_t row = q_documents.first_row(document) + queries.begin,
                key_head = head / (a.q.count / a.k.count);
  const Packed<T> k{scratch.k_along.as<Word>(), rows, D}, v{scratch.v_along.as<Word>(), rows, D};
  const Packed<T> k_down{scratch.k_down.as<Word>(), rows, D};
  const Visible mask = visible(a.mask, q_documents.length(document), documents.length(document));
  load_queries(a, w, row, queries.size(), head);
  std::fill(w.dq, w.dq + queries.size() * width, 0.0f);
  mask.for_each_tile(queries, [&](const Rows& part, int64_t key, int64_t keys, bool masked) {
    const int64_t first = part.begin - queries.begin, lanes = round_up(part.size(), kWidth);
    const int64_t packed = packed_row + key, across = words<T>(kQueryBlock);
    tile::multiply<T>({w.scores + first, kQueryBlock}, keys, lanes, words<T>(D),
                      {k.along(key_head, packed), words<T>(D), 1}, {w.q_across + first, kQueryBlock}, false);
    if (a.softcap > 0) cap_scores(w.scores + first, lanes, keys, a.scale, a.softcap);
    if (masked) mask_scores(w.scores + first, mask, part, key, keys);
    tile::multiply<T>({w.dp + first, kQueryBlock}, keys, lanes, words<T>(D),
                      {v.along(key_head, packed), words<T>(D), 1}, {w.do_across + first, kQueryBlock}, false);
    if (a.softcap > 0)
      w.template differentiate<true>(first, lanes, keys, kLog2e, 1 / a.softcap);
    else
      w.template differentiate<false>(first, lanes, keys, a.scale * kLog2e, 0);
    float* dk = scratch.dk.as<float>() + (head * rows + packed) * width;
    float* dv = scratch.dv.as<float>() + (head * rows + packed) * width;
    const int64_t down = words<T>(first) * width;
    tile::multiply<T>({dv, width}, keys, width, words<T>(part.size()),
                      {w.p_along + words<T>(first), across, 1}, {w.do_down + down, width}, true);
    tile::multiply<T>({dk, width}, keys, width, words<T>(part.size()),
                      {w.ds_along + words<T>(first), across, 1}, {w.q_down + down, width}, true);
    tile::multiply<T>({w.dq + first * width, width}, part.size(), width, words<T>(keys),
                      {w.ds_down + first, 1, kQueryBlock}, {k_down.down(key_head, packed), width}, true);
  });
  for (int64_t i = 0; i < queries.size(); ++i) {
    T* dq = a.dq.at<T>(row + i, head);
    simd::for_each_vector(
        D, [&](int64_t d, auto lanes) { store(dq + d, load(w.dq + i * width + d) * a.scale, lanes); });
  }
}

// out = scale (sum over the query heads of a group), for each key head.
template <class T>
void sum_group(const Heads& out, const Documents& documents, const Tensor& shares, int64_t group,
               float scale) {
  const int64_t rows = shares.shape[1], width = shares.shape[2];
  for_each_block<T>(out, documents, [&](T* to, int64_t head, int64_t row, int64_t count) {
    for (int64_t r = 0; r < count; ++r) {
      const float* share = shares.as<float>() + (head * group * rows + row + r) * width;
      simd::for_each_vector(out.head_size(), [&](int64_t d, auto lanes) {
        Floats total = load(share + d);
        for (int64_t g = 1; g < group; ++g) total = total + load(share + g * rows * width + d);
        store(to + r * out.stride() + d, total * scale, lanes);
      });
    }
  });
}

template <class T>
void backward(const AttentionBackward& a, const BackwardScratch& scratch) {
  const int64_t D = a.q.head_size(), width = round_up(D, kWidth);
  const Documents q_documents(a.mask.cu_seqlens), documents(key_boundaries(a.mask));
  const int64_t rows = packed_rows(a.k.rows(), documents.count);
  const Packed<T> k{scratch.k_along.as<Word>(), rows, D}, v{scratch.v_along.as<Word>(), rows, D};
  const Packed<T> k_down{scratch.k_down.as<Word>(), rows, D};
  for_each_block<T>(a.k, documents, [&](const T* in, int64_t head, int64_t row, int64_t count) {
    tile::pack_along(k.along(head, row), in, a.k.stride(), count, D);
    tile::pack_down(k_down.down(head, row), in, a.k.stride(), count, D);
  });
  for_each_block<T>(a.v, documents, [&](const T* in, int64_t head, int64_t row, int64_t count) {
    tile::pack_along(v.along(head, row), in, a.v.stride(), count, D);
  });
  parallel_for(documents.count * a.q.count, [&](int64_t task, int worker) {
    const int64_t document = task % documents.count, head = task / documents.count;
    BackwardWorker<T> own(scratch.workers.as<Word>() + worker * scratch.workers.shape[-1], D);
    for (const Tensor& shares : {scratch.dk, scratch.dv}) {
      float* share = shares.as<float>() + (head * rows + documents.packed_row(document)) * width;
      std::fill(share, share + documents.length(document) * width, 0.0f);
    }
    const int64_t length = q_documents.length(document);
    for (int64_t i = 0; i < length; i += kQueryBlock)
      backward_block(a, scratch, own, {document, i, std::min(length, i + kQueryBlock)}, head);
  });
  sum_group<T>(a.dk, documents, scratch.dk, a.q.count / a.k.count, a.scale);
  sum_group<T>(a.dv, documents, scratch.dv, a.q.count / a.k.count, 1.0f);
}

}  // namespace flatshard::cpu
