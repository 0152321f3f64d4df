#include "kernels/cached_attention.h"

#include "kernels/attention_forward.h"
#include "kernels/attention_sink.h"
#include "kernels/elementwise.h"
#include "kernels/sink_terms.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

void check_texts(const CachedAttention& a) {
  int64_t rows = 0;
  for (const CachedText& text : a.texts) {
    check(text.rows >= 1 && text.past >= 0 && text.past + text.rows <= text.cache.capacity,
          "cached_attention: a text has ", text.past, " tokens and ", text.rows,
          " new ones, must have at least one new token and at most ", text.cache.capacity, " in all");
    rows += text.rows;
  }
  check(rows == a.q.rows() && rows == a.k.rows() && rows == a.v.rows() && rows == a.o.rows(),
        "cached_attention: o, q, k and v have ", a.o.rows(), ", ", a.q.rows(), ", ", a.k.rows(), " and ",
        a.v.rows(), " rows, must have the ", rows, " of the texts");
  check(a.k.count == a.v.count && a.q.count == a.o.count && a.q.count % a.k.count == 0,
        "cached_attention: ", a.q.count, " query heads, ", a.k.count, " key heads and ", a.v.count,
        " value heads; the first must be a multiple of the others");
  check(a.sinks.empty() || (a.sinks.size() == a.q.count && a.sinks.dtype == a.o.of.dtype),
        "cached_attention: sinks are ", a.sinks.dtype, " ", a.sinks.shape, ", must be ", a.o.of.dtype, " (",
        a.q.count, ")");
}

Heads rows_of(const Heads& x, int64_t begin, int64_t end) {
  Heads part = x;
  part.of = x.of.slice(begin, end);
  return part;
}

// y (rows, heads, D) = x, which may be columns of wider rows.
void append_rows(Stream& stream, const Tensor& y, const Heads& x) {
  const int64_t rows = x.rows(), width = x.count * x.head_size();
  const Tensor all = x.of.view({rows, x.stride()});
  cast(stream, {.y = y.view({rows, width}),
                .x = packed_columns(all, x.first * x.head_size(), {rows, width}),
                .x_stride = x.stride()});
}

// Launches attention for one text on a GPU. The kernel reads the rows in the cache.
void launch_text(Stream& stream, Arena& scratch, const CachedAttention& a, const CachedText& text,
                 int64_t row) {
  const ArenaScope scope(scratch);
  const int64_t all = text.past + text.rows;
  append_rows(stream, text.cache.k.slice(text.past, all), rows_of(a.k, row, row + text.rows));
  append_rows(stream, text.cache.v.slice(text.past, all), rows_of(a.v, row, row + text.rows));
  const Heads o = rows_of(a.o, row, row + text.rows);
  const Tensor lse = scratch.alloc(DType::f32, {a.q.count, text.rows});
  attention_forward(stream, scratch,
                    {.o = o,
                     .lse = lse,
                     .q = rows_of(a.q, row, row + text.rows),
                     .k = text.cache.k.slice(0, all),
                     .v = text.cache.v.slice(0, all),
                     .mask = {.cu_seqlens = text.boundaries.slice(0, 2),
                              .cu_seqlens_kv = text.boundaries.slice(2, 4),
                              .causal = true,
                              .window = a.window},
                     .scale = a.scale,
                     .softcap = a.softcap});
  if (!a.sinks.empty()) attention_sink_forward(stream, {.o = o, .lse = lse, .sinks = a.sinks});
}

}  // namespace

namespace cpu {
namespace {

// Packs the text's new keys and values, which begin at row `row`, after the ones in the cache.
template <class T>
void append(const CachedAttention& a, const CachedText& text, int64_t row, int64_t head) {
  const int64_t D = a.k.head_size(), past = text.past;
  const Packed<T> k{text.cache.k.as<Word>(), text.cache.capacity, D},
      v{text.cache.v.as<Word>(), text.cache.capacity, D};
  tile::pack_along(k.along(head, past), a.k.at<T>(row, head), a.k.stride(), text.rows, D);
  const int64_t fills = past % tile::kPerWord<T>;  // number of rows that complete a pair
  if constexpr (tile::kPerWord<T> == 2)
    if (fills > 0) tile::complete_pairs(v.down(head, past - 1), a.v.at<T>(row, head), D);
  if (text.rows > fills)
    tile::pack_down(v.down(head, past + fills), a.v.at<T>(row + fills, head), a.v.stride(), text.rows - fills,
                    D);
}

// A text's queries in blocks. A block contains rows of one head. For a single row it contains the heads that
// share their keys, because one head would leave most lanes empty.
struct Blocks {
  Blocks(const CachedAttention& a, const CachedText& text)
      : single(text.rows == 1),
        group(a.q.count / a.k.count),
        queries(single ? group : text.rows),
        per_head((queries + kQueryBlock - 1) / kQueryBlock),
        count((single ? a.k.count : a.q.count) * per_head) {}

  bool single;
  int64_t group, queries, per_head, count;
};

template <class T>
void forward_block_of(const CachedAttention& a, const CachedText& text, int64_t row, const Blocks& blocks,
                      int64_t block, ForwardWorker<T>& worker) {
  const int64_t D = a.q.head_size(), head = block / blocks.per_head;  // key head if single, else query head
  const int64_t begin = block % blocks.per_head * kQueryBlock;
  const int64_t key_head = blocks.single ? head : head / blocks.group;
  const int64_t at_row = blocks.single ? row : row + begin;
  const int64_t at_head = blocks.single ? head * blocks.group + begin : head;
  const Packed<T> k{text.cache.k.as<Word>(), text.cache.capacity, D},
      v{text.cache.v.as<Word>(), text.cache.capacity, D};
  float lse[kQueryBlock];
  T* const o = a.o.at<T>(at_row, at_head);
  const int64_t o_stride = blocks.single ? D : a.o.stride();
  forward_block<T>({.q = a.q.at<T>(at_row, at_head),
                    .o = o,
                    .lse = a.sinks.empty() ? nullptr : lse,
                    .q_stride = blocks.single ? D : a.q.stride(),
                    .o_stride = o_stride,
                    .k = k.along(key_head, 0),
                    .v = v.down(key_head, 0),
                    .queries = {0, begin, std::min(blocks.queries, begin + kQueryBlock)},
                    .mask = {.keys = text.past + text.rows,
                             .shift = text.past,
                             .causal = true,
                             .window = a.window,
                             .step = blocks.single ? 0 : 1},
                    .D = D,
                    .scale = a.scale,
                    .softcap = a.softcap},
                   worker);
  if (a.sinks.empty()) return;
  const int64_t queries = std::min(blocks.queries - begin, kQueryBlock);
  for (int64_t i = 0; i < queries; ++i)
    add_sink(o + i * o_stride, D, lse[i],
             static_cast<float>(a.sinks.as<T>()[blocks.single ? at_head + i : at_head]));
}

// Calls work(text, first row, task of the text, worker) for tasks(text) tasks of every text, in parallel.
template <class Tasks, class Work>
void for_each_task(const CachedAttention& a, Tasks&& tasks, Work&& work) {
  int64_t count = 0;
  for (const CachedText& text : a.texts) count += tasks(text);
  parallel_for(count, [&](int64_t task, int worker) {
    int64_t row = 0;
    for (const CachedText& text : a.texts) {
      const int64_t own = tasks(text);
      if (task < own) return work(text, row, task, worker);
      task -= own;
      row += text.rows;
    }
  });
}

template <class T>
void attend(const CachedAttention& a, const Tensor& workers) {
  for_each_task(
      a, [&](const CachedText&) { return a.k.count; },
      [&](const CachedText& text, int64_t row, int64_t head, int) { append<T>(a, text, row, head); });
  for_each_task(
      a, [&](const CachedText& text) { return Blocks(a, text).count; },
      [&](const CachedText& text, int64_t row, int64_t block, int worker) {
        ForwardWorker<T> own(workers.as<Word>() + worker * workers.shape[-1], a.q.head_size());
        forward_block_of<T>(a, text, row, Blocks(a, text), block, own);
      });
}

}  // namespace
}  // namespace cpu

CachedKeys alloc_cached_keys(Arena& arena, DType dtype, int64_t heads, int64_t D, int64_t capacity) {
  CachedKeys cache{{}, {}, capacity};
  if (arena.device().is_cuda()) {
    cache.k = arena.alloc(dtype, {capacity, heads, D});
    cache.v = arena.alloc(dtype, {capacity, heads, D});
    return cache;
  }
  tile::visit_operand(dtype, [&]<class T>() {
    cache.k = arena.alloc(DType::i32, {heads, cpu::Packed<T>::size_along(capacity, D)});
    cache.v = arena.alloc(DType::i32, {heads, cpu::Packed<T>::size_down(capacity, D)});
  });
  return cache;
}

void cached_attention_forward(Stream& stream, Arena& scratch, const CachedAttention& a) {
  check_texts(a);
  if (stream.device().is_cuda()) {
    int64_t row = 0;
    for (const CachedText& text : a.texts) {
      launch_text(stream, scratch, a, text, row);
      row += text.rows;
    }
    return;
  }
  const ArenaScope scope(scratch);
  tile::visit_operand(a.q.of.dtype, [&]<class T>() {
    const Tensor workers =
        scratch.alloc(DType::i32, {thread_count(), cpu::ForwardWorker<T>::size(a.q.head_size())});
    stream.run("cached_attention", [a, workers] { cpu::attend<T>(a, workers); });
  });
}

}  // namespace flatshard
