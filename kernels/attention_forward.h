#pragma once
// The forward pass of attention on the CPU: an online softmax over tiles of kKeyBlock keys and kQueryBlock
// queries, one task per block of queries of a head.

#include <cmath>

#include "kernels/attention_tile.h"

namespace flatshard::cpu {

// The packed keys and values that all tasks read, and the workspace of each worker.
struct ForwardScratch {
  Tensor k, v;     // (Hkv, words); k packed along, v packed down
  Tensor workers;  // (threads, words)
};

template <class T>
struct ForwardWorker {
  Word* q;        // (words(D), kQueryBlock): the block's queries, transposed
  float* scores;  // (kKeyBlock, kQueryBlock)
  Word* p;        // (words(kKeyBlock), kQueryBlock)
  float* o;       // (kQueryBlock, D rounded up)
  float maximum[kQueryBlock], sum[kQueryBlock], factor[kQueryBlock];

  static int64_t size(int64_t D) {
    return words<T>(D) * kQueryBlock + (kKeyBlock + words<T>(kKeyBlock) + round_up(D, kWidth)) * kQueryBlock;
  }
  ForwardWorker(Word* data, int64_t D) {
    q = data;
    scores = reinterpret_cast<float*>(q + words<T>(D) * kQueryBlock);
    p = reinterpret_cast<Word*>(scores + kKeyBlock * kQueryBlock);
    o = reinterpret_cast<float*>(p + words<T>(kKeyBlock) * kQueryBlock);
    std::fill(maximum, maximum + kQueryBlock, -kInfinity);
    std::fill(sum, sum + kQueryBlock, 0.0f);
  }

  // For queries [first, first + queries): updates the running maximum and sum, and computes
  // p = 2^(scale scores - maximum). The caller multiplies the previous o by factor. A tile that is fully
  // masked for a query leaves its state unchanged.
  void softmax(int64_t first, int64_t queries, int64_t keys, float scale) {
    for (int64_t i = first; i < first + queries; i += kWidth) {
      const float* s = scores + i;
      const Floats before = load(maximum + i);
      Floats now = before;
      for (int64_t j = 0; j < keys; ++j) now = simd::max(load(s + j * kQueryBlock) * scale, now);
      const Floats shift = now == -kInfinity ? splat(0.0f) : now;
      Floats total{};
      for (int64_t j = 0; j < keys; j += 2) {
        const Floats even = exp2(simd::fma(load(s + j * kQueryBlock), splat(scale), -shift));
        const Floats odd =
            j + 1 < keys ? exp2(simd::fma(load(s + (j + 1) * kQueryBlock), splat(scale), -shift)) : Floats{};
        total = total + even + odd;
        tile::store_down<T>(p + words<T>(j) * kQueryBlock + i, kQueryBlock, even, odd);
      }
      const Floats kept = exp2(before - shift);
      store(maximum + i, now);
      store(factor + i, kept);
      store(sum + i, simd::fma(load(sum + i), kept, total));
    }
  }
};

// A block of queries that share the keys and values of one head of a document.
template <class T>
struct ForwardBlock {
  const T* q;  // first query; the next one is q_stride values further
  T* o;
  float* lse;  // may be null
  int64_t q_stride, o_stride;
  const Word *k, *v;  // the document's first key and value; k packed along, v packed down
  Rows queries;
  Visible mask;
  int64_t D;
  float scale, softcap;
};

template <class T>
void forward_block(const ForwardBlock<T>& b, ForwardWorker<T>& w) {
  const Rows& queries = b.queries;
  const int64_t D = b.D, width = round_up(D, kWidth);
  tile::pack_transposed(w.q, kQueryBlock, b.q, b.q_stride, queries.size(), D);
  std::fill(w.o, w.o + queries.size() * width, 0.0f);
  b.mask.for_each_tile(queries, [&](const Rows& part, int64_t key, int64_t keys, bool masked) {
    const int64_t first = part.begin - queries.begin, lanes = round_up(part.size(), kWidth);
    tile::multiply<T>({w.scores + first, kQueryBlock}, keys, lanes, words<T>(D),
                      {b.k + Packed<T>::size_along(key, D), words<T>(D), 1}, {w.q + first, kQueryBlock},
                      false);
    if (b.softcap > 0) cap_scores(w.scores + first, lanes, keys, b.scale, b.softcap);
    if (masked) mask_scores(w.scores + first, b.mask, part, key, keys);
    w.softmax(first, lanes, keys, (b.softcap > 0 ? 1.0f : b.scale) * kLog2e);
    for (int64_t i = first; i < first + part.size(); ++i)
      if (w.factor[i] != 1.0f)
        for (int64_t d = 0; d < width; d += kWidth) {
          float* o = w.o + i * width + d;
          store(o, load(o) * w.factor[i]);
        }
    tile::multiply<T>({w.o + first * width, width}, part.size(), width, words<T>(keys),
                      {w.p + first, 1, kQueryBlock}, {b.v + Packed<T>::size_down(key, D), width}, true);
  });
  for (int64_t i = 0; i < queries.size(); ++i) {
    const bool fully_masked = w.sum[i] == 0;
    const float inverse = fully_masked ? 0.0f : 1.0f / w.sum[i];
    T* o = b.o + i * b.o_stride;
    simd::for_each_vector(
        D, [&](int64_t d, auto count) { store(o + d, load(w.o + i * width + d) * inverse, count); });
    if (b.lse) b.lse[i] = fully_masked ? -kInfinity : (w.maximum[i] + std::log2(w.sum[i])) * kLn2;
  }
}

template <class T>
void forward(const AttentionForward& a, const ForwardScratch& scratch) {
  const int64_t D = a.q.head_size();
  const Documents q_documents(a.mask.cu_seqlens), documents(key_boundaries(a.mask));
  const int64_t rows = packed_rows(a.k.rows(), documents.count);
  const Packed<T> k{scratch.k.as<Word>(), rows, D}, v{scratch.v.as<Word>(), rows, D};
  for_each_block<T>(a.k, documents, [&](const T* in, int64_t head, int64_t row, int64_t count) {
    tile::pack_along(k.along(head, row), in, a.k.stride(), count, D);
  });
  for_each_block<T>(a.v, documents, [&](const T* in, int64_t head, int64_t row, int64_t count) {
    tile::pack_down(v.down(head, row), in, a.v.stride(), count, D);
  });
  const int64_t slots = q_documents.slots(kQueryBlock);
  parallel_for(slots * a.q.count, [&](int64_t task, int worker) {
    const Rows queries = q_documents.block(task % slots, kQueryBlock);
    if (queries.size() <= 0) return;
    const int64_t document = queries.document, head = task / slots, key_head = head / (a.q.count / a.k.count);
    const int64_t row = q_documents.first_row(document) + queries.begin;
    const int64_t packed_row = documents.packed_row(document);
    ForwardWorker<T> own(scratch.workers.as<Word>() + worker * scratch.workers.shape[-1], D);
    forward_block<T>({.q = a.q.at<T>(row, head),
                      .o = a.o.at<T>(row, head),
                      .lse = a.lse.as<float>() + head * a.q.rows() + row,
                      .q_stride = a.q.stride(),
                      .o_stride = a.o.stride(),
                      .k = k.along(key_head, packed_row),
                      .v = v.down(key_head, packed_row),
                      .queries = queries,
                      .mask = visible(a.mask, q_documents.length(document), documents.length(document)),
                      .D = D,
                      .scale = a.scale,
                      .softcap = a.softcap},
                     own);
  });
}

}  // namespace flatshard::cpu
