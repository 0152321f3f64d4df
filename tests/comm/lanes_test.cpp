// The assignment of the global batch's lanes to ranks: each lane exactly once, and such that every step of
// the exact sum adds up a complete subtree of the tree over all lanes.

#include "comm/lanes.h"

#include <algorithm>
#include <set>

#include "tests/test.h"

using namespace flatshard;

namespace {

// A sum over lanes [first, first + count): a node of the tree if count is a power of two and divides first.
struct Node {
  int64_t first, count;
};

Node joined(const Node& left, const Node& right) {
  CHECK(left.count == right.count);
  CHECK(left.first + left.count == right.first);
  CHECK(left.first % (2 * left.count) == 0);
  return {left.first, 2 * left.count};
}

Node tree(std::vector<Node> nodes) {
  while (nodes.size() > 1) {
    std::vector<Node> next;
    for (size_t i = 0; i + 1 < nodes.size(); i += 2) next.push_back(joined(nodes[i], nodes[i + 1]));
    nodes = next;
  }
  return nodes.front();
}

template <class Make>
Node tree_over(int64_t count, Make&& make) {
  std::vector<Node> nodes;
  for (int64_t i = 0; i < count; ++i) nodes.push_back(make(i));
  return tree(nodes);
}

// Visits every way to divide lanes among ranks, groups, micro-steps and lanes per micro-step.
template <class Visit>
void for_each_cut(const std::vector<int64_t>& numbers, Visit&& visit) {
  for (const int64_t ranks : numbers)
    for (const int64_t size : numbers)
      for (const int64_t micro_steps : numbers)
        for (const int64_t lanes : numbers)
          for (const bool grads : {false, true}) {
            if (ranks % size != 0) continue;
            UnitOptions options;
            options.policy = {Strategy::full_shard, true, grads, true};
            options.lanes = static_cast<int>(lanes);
            options.micro_steps = micro_steps;
            visit(options, RankGroups{static_cast<int>(ranks), static_cast<int>(size)});
          }
}

}  // namespace

TEST_CASE("every lane of the global batch is computed exactly once") {
  for_each_cut({1, 2, 3, 4, 6}, [](const UnitOptions& options, RankGroups groups) {
    std::set<int64_t> seen;
    for (int rank = 0; rank < groups.ranks; ++rank)
      for (int64_t micro = 0; micro < options.micro_steps; ++micro)
        for (int64_t lane = 0; lane < options.lanes; ++lane)
          seen.insert(lane_of(options, groups, rank, micro, lane));
    const int64_t all = groups.ranks * options.micro_steps * options.lanes;
    CHECK(static_cast<int64_t>(seen.size()) == all);
    CHECK(*seen.begin() == 0);
    CHECK(*seen.rbegin() == all - 1);
  });
}

TEST_CASE("a lane of several micro-steps is computed by one rank, in order, and every micro-batch once") {
  for_each_cut({1, 2, 3, 4, 6}, [](const UnitOptions& options, RankGroups groups) {
    if (options.lanes > 1) return;
    for (const int64_t lane_steps : {2, 3}) {
      UnitOptions spanning = options;
      spanning.lane_steps = lane_steps;
      spanning.micro_steps *= lane_steps;
      std::set<int64_t> seen;
      for (int rank = 0; rank < groups.ranks; ++rank)
        for (int64_t micro = 0; micro < spanning.micro_steps; ++micro) {
          const int64_t lane = lane_of(spanning, groups, rank, micro, 0),
                        batch = lane_part_of(spanning, groups, rank, micro, 0);
          CHECK(batch == lane * lane_steps + micro % lane_steps);
          CHECK(lane == lane_of(spanning, groups, rank, micro / lane_steps * lane_steps, 0));
          seen.insert(batch);
        }
      CHECK(static_cast<int64_t>(seen.size()) == groups.ranks * spanning.micro_steps);
      CHECK(*seen.rbegin() == groups.ranks * spanning.micro_steps - 1);
    }
  });
}

TEST_CASE("each part of the sum over lanes adds up a subtree of one tree") {
  for_each_cut({1, 2, 4, 8}, [](const UnitOptions& options, RankGroups groups) {
    const auto of_rank = [&](int64_t group, int64_t place, int64_t micro) {
      const int rank = static_cast<int>(group * groups.size + place);
      return tree_over(options.lanes, [&](int64_t lane) -> Node {
        return {lane_of(options, groups, rank, micro, lane), 1};
      });
    };
    const Node everything = tree_over(groups.count(), [&](int64_t group) {
      if (sums_are_unsharded(options, groups))
        return tree_over(groups.size, [&](int64_t place) {
          return tree_over(options.micro_steps, [&](int64_t micro) { return of_rank(group, place, micro); });
        });
      return tree_over(options.micro_steps, [&](int64_t micro) {
        return tree_over(groups.size, [&](int64_t place) { return of_rank(group, place, micro); });
      });
    });
    CHECK(everything.first == 0);
    CHECK(everything.count == groups.ranks * options.micro_steps * options.lanes);
  });
}
