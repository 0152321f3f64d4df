// The order in which blocks of attention start on a GPU, and how evenly it loads multiprocessors.

#include "kernels/attention_order.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <random>
#include <set>
#include <vector>

#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::cuda;

namespace {

using Boundaries = std::vector<int32_t>;

Boundaries boundaries_of(const std::vector<int>& lengths) {
  Boundaries all{0};
  for (const int length : lengths) all.push_back(all.back() + length);
  return all;
}
Documents documents_of(const Boundaries& at) {
  return {at.data(), static_cast<int>(at.size()) - 1, at.back()};
}

struct Batch {
  std::vector<int> queries, keys{};  // of each document
  int size;                          // rows of a block
  bool causal, owns_keys;
  int window = 0;  // 0: none

  bool attends(size_t document, int query, int key) const {
    const int distance = query + keys[document] - queries[document] - key;
    return !causal || (distance >= 0 && (window == 0 || distance < window));
  }
};

// The blocks of the other side that hold a row which some row of a block sees.
int cost_of(const Batch& b, const BlockOrder::Block& block) {
  const auto document = static_cast<size_t>(block.document);
  const int own = (b.owns_keys ? b.keys : b.queries)[document],
            other = (b.owns_keys ? b.queries : b.keys)[document], begin = block.index * b.size;
  std::set<int> seen;
  for (int i = begin; i < std::min(own, begin + b.size); ++i)
    for (int j = 0; j < other; ++j)
      if (b.attends(document, b.owns_keys ? j : i, b.owns_keys ? i : j)) seen.insert(j / b.size);
  return static_cast<int>(seen.size());
}

// The blocks of all slots, with the empty ones.
std::vector<BlockOrder::Block> slots_of(const Batch& b) {
  const Boundaries queries = boundaries_of(b.queries), keys = boundaries_of(b.keys);
  const Documents of_queries = documents_of(queries), of_keys = documents_of(keys);
  const BlockOrder order{.own = b.owns_keys ? of_keys : of_queries,
                         .other = b.owns_keys ? of_queries : of_keys,
                         .size = b.size,
                         .causal = b.causal,
                         .owns_keys = b.owns_keys};
  std::vector<BlockOrder::Block> all;
  for (int slot = 0; slot < order.own.slots(b.size); ++slot) all.push_back(order.block_of<OneLane>(slot));
  return all;
}

constexpr int kBatches = 400, kMostDocuments = 12, kMostRows = 150;

Batch draw(std::mt19937& random, int most_documents = kMostDocuments) {
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  const auto lengths = [&](int documents) {
    std::vector<int> all;
    for (int i = 0; i < documents; ++i) all.push_back(below(4) == 0 ? below(3) : below(kMostRows));
    return all;
  };
  const int documents = below(most_documents) + 1;
  Batch b{.queries = lengths(documents),
          .size = 8 << below(3),
          .causal = below(3) > 0,
          .owns_keys = below(2) == 0};
  b.keys = below(3) == 0 ? lengths(documents) : b.queries;
  if (b.causal && b.keys == b.queries && below(3) == 0) b.window = below(kMostRows) + 1;
  return b;
}

// Blocks of every document, each of which must have one slot.
std::set<std::pair<int, int>> blocks_of(const Batch& b) {
  std::set<std::pair<int, int>> all;
  const std::vector<int>& own = b.owns_keys ? b.keys : b.queries;
  for (int d = 0; d < static_cast<int>(own.size()); ++d)
    for (int n = 0; n * b.size < own[static_cast<size_t>(d)]; ++n) all.emplace(d, n);
  return all;
}

// A lane that must not be asked to search.
struct NoLanes : OneLane {
  static inline int calls = 0;
  static int sum(int value) { return ++calls, value; }
  static int most(int value) { return ++calls, value; }
};

// The mean load of multiprocessors over the largest, if each takes the next block when it has finished one.
double balance(const Batch& b, int heads) {
  constexpr size_t kMultiprocessors = 132;
  using Ends = std::vector<int>;
  std::priority_queue<int, Ends, std::greater<>> ends({}, Ends(kMultiprocessors));
  int sum = 0, last = 0;
  for (const BlockOrder::Block& block : slots_of(b)) {
    if (block.empty()) continue;
    const int cost = cost_of(b, block);
    for (int head = 0; head < heads; ++head) {
      const int end = ends.top() + cost;
      ends.pop();
      ends.push(end);
      sum += cost;
      last = std::max(last, end);
    }
  }
  return sum / static_cast<double>(kMultiprocessors) / last;
}

}  // namespace

TEST_CASE("every block of attention has one slot, the empty slots come last, and costs descend") {
  std::mt19937 random(1);
  for (int i = 0; i < kBatches; ++i) {
    const Batch b = draw(random);
    CAPTURE(i);
    std::set<std::pair<int, int>> missing = blocks_of(b);
    // Where documents have other numbers of keys than of queries, blocks of both do not begin at the same
    // positions.
    const int inexact = b.keys == b.queries ? 0 : 1;
    bool ended = false;
    int least = std::numeric_limits<int>::max() - 1;
    for (const BlockOrder::Block& block : slots_of(b)) {
      ended |= block.empty();
      CHECK(block.empty() == ended);
      if (block.empty()) continue;
      CHECK(missing.erase({block.document, block.index}) == 1);
      const int cost = cost_of(b, block);
      CHECK(cost <= least + inexact);
      least = std::min(least, cost);
    }
    CHECK(missing.empty());
  }
}

// The one pass needs blocks of keys in the order of keys within a document.
TEST_CASE("blocks of more documents than are sorted have one slot each, in the order of documents") {
  constexpr int kFewer = 20;
  std::mt19937 random(2);
  for (int i = 0; i < kFewer;) {
    const Batch b = draw(random, 4 * BlockOrder::kMostSorted);
    if (static_cast<int>(b.keys.size()) <= BlockOrder::kMostSorted) continue;
    CAPTURE(i);
    ++i;
    std::set<std::pair<int, int>> missing = blocks_of(b);
    int document = 0, index = -1;
    for (const BlockOrder::Block& block : slots_of(b)) {
      if (block.empty()) continue;
      CHECK(missing.erase({block.document, block.index}) == 1);
      CHECK(block.document >= document);
      if (block.document == document && index >= 0)
        CHECK(block.index == (b.owns_keys ? index + 1 : index - 1));
      document = block.document, index = block.index;
    }
    CHECK(missing.empty());
  }
}

// 65,536 documents of 64 tokens: with passes over all documents in every block this test would take minutes.
TEST_CASE("a block finds its place among very many documents without a pass over them") {
  const std::vector<int> lengths(1 << 16, 64);
  const Boundaries boundaries = boundaries_of(lengths);
  const Documents documents = documents_of(boundaries);
  const BlockOrder order{
      .own = documents, .other = documents, .size = 128, .causal = true, .owns_keys = false};
  NoLanes::calls = 0;
  int found = 0;
  for (int slot = 0; slot < documents.slots(128); ++slot) found += !order.block_of<NoLanes>(slot).empty();
  CHECK(found == static_cast<int>(lengths.size()));
  CHECK(NoLanes::calls == 0);
}

// With documents one after the other, the key blocks of the first three batches load multiprocessors to 0.63
// to 0.66.
TEST_CASE("the blocks of long documents load all multiprocessors evenly, with few key heads too") {
  struct Shape {
    size_t documents;
    int rows, query_heads, key_heads;
  };
  for (const Shape& s : {Shape{16, 1024, 14, 2}, Shape{4, 4096, 14, 2}, Shape{2, 8192, 12, 2},
                         Shape{2, 4096, 32, 8}, Shape{4, 4096, 16, 16}}) {
    CAPTURE(s.rows);
    for (const bool owns_keys : {false, true}) {
      // A block stands for 128 rows, so that the model takes little time.
      const std::vector<int> lengths(s.documents, s.rows / 128);
      const Batch b{.queries = lengths, .keys = lengths, .size = 1, .causal = true, .owns_keys = owns_keys};
      CHECK(balance(b, owns_keys ? s.key_heads : s.query_heads) >= 0.96);
    }
  }
}
