#include "comm/flat_layout.h"

#include <algorithm>
#include <map>

#include "tests/test.h"

using namespace flatshard;

namespace {

// Parameters of every kind: with and without decay, trainable and frozen, of odd sizes, in mixed order.
ParamList mixed() {
  ParamList params;
  const auto add = [&](const char* name, const Shape& shape, bool decay, bool trainable) {
    params.add({.name = name, .shape = shape, .init = {}, .decay = decay, .trainable = trainable});
  };
  add("bias", {1}, false, true);
  add("weight", {97, 131}, true, true);
  add("still", {33, 5}, true, false);
  add("norm", {129}, false, true);
  add("other", {61, 301}, true, true);
  add("still norm", {7}, false, false);
  add("tail", {128}, true, true);
  return params;
}

FlatLayout frozen_f32(const ParamList& params, int ranks, int replicas) {
  return FlatLayout::frozen(params, DType::f32, ranks, replicas);
}

constexpr FlatLayout (*kLayouts[])(const ParamList&, int ranks, int replicas) = {FlatLayout::trainable,
                                                                                 frozen_f32};

constexpr int kRanks[] = {1, 2, 3, 4, 5, 8, 16, 64};

int64_t end_of(const FlatLayout& layout) {
  int64_t end = 0;
  for (const FlatLayout::Extent& extent : layout.extents()) end = std::max(end, extent.begin + extent.size);
  return end;
}

}  // namespace

TEST_CASE("decayed parameters come first, each in order of declaration, at a multiple of the alignment") {
  const ParamList params = mixed();
  std::vector<std::string> order;
  int64_t free_from = 0;
  const FlatLayout layout = FlatLayout::trainable(params, 4);
  for (const FlatLayout::Extent& extent : layout.extents()) {
    order.push_back(params[extent.param].name);
    CHECK(extent.size == params[extent.param].shape.size());
    CHECK(extent.begin % FlatLayout::kAlignment == 0);
    CHECK(extent.begin >= free_from);
    CHECK(extent.begin < free_from + FlatLayout::kAlignment);  // the first such multiple
    free_from = extent.begin + extent.size;
  }
  CHECK(order == std::vector<std::string>{"weight", "other", "tail", "bias", "norm"});
  const FlatLayout frozen = frozen_f32(params, 4, 1);
  REQUIRE(frozen.extents().size() == 2);
  CHECK(params[frozen.extents()[0].param].name == "still");
  CHECK(params[frozen.extents()[1].param].name == "still norm");
}

TEST_CASE("the offsets of parameters do not depend on the number of ranks") {
  const ParamList params = mixed();
  for (const auto make : kLayouts) {
    const FlatLayout alone = make(params, 1, 1);
    for (const int ranks : kRanks)
      for (const int replicas : {1, 2, 3, 4}) {
        const FlatLayout layout = make(params, ranks, replicas);
        REQUIRE(layout.extents().size() == alone.extents().size());
        for (size_t i = 0; i < alone.extents().size(); ++i) {
          CHECK(layout.extents()[i].param.index == alone.extents()[i].param.index);
          CHECK(layout.extents()[i].begin == alone.extents()[i].begin);
          CHECK(layout.extents()[i].size == alone.extents()[i].size);
        }
      }
  }
}

TEST_CASE("the pieces of all ranks cover every element exactly once, at its offset") {
  const ParamList params = mixed();
  for (const auto make : kLayouts)
    for (const int ranks : kRanks)
      for (const int replicas : {1, 2, 3}) {
        CAPTURE(ranks);
        CAPTURE(replicas);
        const FlatLayout layout = make(params, ranks, replicas);
        std::map<int, int64_t> covered;  // elements of each parameter covered by the ranks so far
        std::map<int, int64_t> begin;
        for (const FlatLayout::Extent& extent : layout.extents()) begin[extent.param.index] = extent.begin;
        for (int rank = 0; rank < ranks; ++rank)
          for (const FlatLayout::Piece& piece : layout.pieces(rank)) {
            CHECK(piece.size > 0);
            CHECK(piece.param_offset == covered[piece.param.index]);
            CHECK(piece.shard_offset >= 0);
            CHECK(piece.shard_offset + piece.size <= layout.shard_size());
            CHECK(rank * layout.shard_size() + piece.shard_offset ==
                  begin[piece.param.index] + piece.param_offset);
            covered[piece.param.index] += piece.size;
          }
        for (const FlatLayout::Extent& extent : layout.extents())
          CHECK(covered[extent.param.index] == extent.size);
      }
}

TEST_CASE("shards are as short as equal shards that divide among replicas can be") {
  const ParamList params = mixed();
  for (const int ranks : kRanks)
    for (const int replicas : {1, 2, 3, 8}) {
      CAPTURE(ranks);
      CAPTURE(replicas);
      const FlatLayout layout = FlatLayout::trainable(params, ranks, replicas);
      const int64_t multiple = replicas * FlatLayout::kShardMultiple, end = end_of(layout);
      CHECK(layout.shard_size() % multiple == 0);
      CHECK(layout.size() == ranks * layout.shard_size());
      CHECK(layout.size() >= end);
      CHECK(layout.size() - ranks * multiple < end);
    }
  // 97 x 131 -> 12800, 61 x 301 -> 18432, 128 -> 256, 1 -> 256, 129: ends at 31873.
  CHECK(end_of(FlatLayout::trainable(params, 1)) == 31873);
  CHECK(FlatLayout::trainable(params, 1).shard_size() == 32768);
  CHECK(FlatLayout::trainable(params, 3).shard_size() == 12288);
  CHECK(FlatLayout::trainable(params, 8).shard_size() == 4096);
  CHECK(FlatLayout::trainable(params, 4, 4).shard_size() == 16384);
  CHECK(FlatLayout::trainable(params, 64).shard_size() == 4096);
}

TEST_CASE("a part of a layout has the shards of its ranks") {
  ParamList params;
  for (int i = 0; i < 8; ++i)
    params.add(
        {.name = str("expert ", i), .shape = {3, FlatLayout::kShardMultiple}, .init = {}, .joined = i > 0});
  const FlatLayout whole = FlatLayout::trainable(params, 8);
  for (const int parts : {1, 2, 4, 8})
    for (int rank = 0; rank < 8; ++rank) {
      const int owners = 8 / parts;
      const FlatLayout part = whole.part(rank / owners, parts);
      CHECK(part.size() == whole.size() / parts);
      CHECK(part.extents().size() == static_cast<size_t>(8 / parts));
      CHECK(part.decayed_in_shard(rank % owners) == whole.decayed_in_shard(rank));
      const std::vector<FlatLayout::Piece> of_part = part.pieces(rank % owners),
                                           of_whole = whole.pieces(rank);
      REQUIRE(of_part.size() == of_whole.size());
      for (size_t i = 0; i < of_part.size(); ++i) {
        CHECK(of_part[i].param.index == of_whole[i].param.index);
        CHECK(of_part[i].param_offset == of_whole[i].param_offset);
        CHECK(of_part[i].shard_offset == of_whole[i].shard_offset);
      }
    }
  CHECK(test::error_of([&] {
          FlatLayout::trainable(mixed(), 8).part(0, 8);
        }).find("is not whole in one of 8 parts") != std::string::npos);
}

TEST_CASE("the decayed elements are the head of every rank's shard") {
  const ParamList params = mixed();
  for (const int ranks : kRanks) {
    CAPTURE(ranks);
    const FlatLayout layout = FlatLayout::trainable(params, ranks);
    int64_t decayed = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t end = layout.decayed_in_shard(rank);
      CHECK(end >= 0);
      CHECK(end <= layout.shard_size());
      decayed += end;
      for (const FlatLayout::Piece& piece : layout.pieces(rank)) {
        CAPTURE(params[piece.param].name);
        if (params[piece.param].decay)
          CHECK(piece.shard_offset + piece.size <= end);
        else
          CHECK(piece.shard_offset >= end);
      }
    }
    CHECK(decayed == 12800 + 18432 + 256);
  }
}

TEST_CASE("joined parameters are one matrix, at the same offset on any number of ranks") {
  ParamList params;
  const auto add = [&](const char* name, const Shape& shape, bool joined, bool decay = true) {
    params.add({.name = name, .shape = shape, .init = {}, .decay = decay, .joined = joined});
  };
  add("bias", {3}, false, false);
  add("weight", {5, 7}, false);
  add("a", {3, 45}, false);
  add("joined to a", {5, 45}, true);
  add("joined to both", {1, 45}, true);
  add("b", {7, 3}, false);
  add("plain", {45}, false, false);
  add("joined to plain", {46}, true, false);
  // Decayed: weight, a and what is joined to it, b. Then those without decay.
  const std::vector<int64_t> begins{0, 256, 256 + 3 * 45, 256 + 8 * 45, 768, 1024, 1280, 1280 + 45};
  for (const int ranks : kRanks) {
    CAPTURE(ranks);
    const FlatLayout layout = FlatLayout::trainable(params, ranks);
    std::vector<int64_t> found;
    for (const FlatLayout::Extent& extent : layout.extents()) found.push_back(extent.begin);
    CHECK(found == begins);
  }
  CHECK(FlatLayout::trainable(params, 1).decayed_in_shard(0) == 1024);
}

TEST_CASE("joined parameters must all be trained or frozen, and all decayed or not") {
  const auto error = [](bool trainable, bool joined_trainable, bool decay, bool joined_decay) {
    ParamList params;
    params.add({.name = "a", .shape = {3, 45}, .init = {}, .decay = decay, .trainable = trainable});
    params.add({.name = "joined",
                .shape = {5, 45},
                .init = {},
                .decay = joined_decay,
                .trainable = joined_trainable,
                .joined = true});
    return test::error_of([&] {
      for (const auto make : kLayouts) make(params, 2, 1);
    });
  };
  const std::string refused =
      "joined is one matrix with the parameter before it: both must be trained or frozen, and both decayed "
      "or not";
  for (const bool trainable : {false, true})
    for (const bool decay : {false, true}) {
      CHECK(error(trainable, trainable, decay, decay).empty());
      CHECK(error(trainable, !trainable, decay, decay) == refused);
      CHECK(error(trainable, trainable, decay, !decay) == refused);
    }
}

TEST_CASE("the layout of a segment without parameters is empty") {
  ParamList params;
  params.add({.name = "only", .shape = {5}, .init = {}, .trainable = false});
  const FlatLayout none = FlatLayout::trainable(params, 4);
  CHECK(none.empty());
  CHECK(none.size() == 0);
  CHECK(none.pieces(3).empty());
  CHECK(none.decayed_in_shard(2) == 0);
  CHECK(!frozen_f32(params, 4, 1).empty());
  CHECK(test::error_of([&] { frozen_f32(params, 0, 1); }) ==
        "a flat layout for 0 ranks, must be for at least 1");
}

TEST_CASE("frozen parameters keep their own dtype, at the same bytes on any number of ranks") {
  ParamList params;
  const auto add = [&](const char* name, int64_t size, std::optional<DType> dtype) {
    params.add({.name = name, .shape = {size}, .init = {}, .trainable = false, .dtype = dtype});
  };
  add("norm", 70, std::nullopt);
  add("codes", 12345, DType::u8);
  add("scales", 193, DType::f32);
  std::vector<uint8_t> bytes(16384);
  const int64_t begin[] = {0, 256, 12800}, width[] = {2, 1, 4};
  const FlatLayout one = FlatLayout::frozen(params, DType::bf16, 1);
  REQUIRE(one.size() == 16384);
  for (size_t i = 0; i < 3; ++i) CHECK(one.extents()[i].begin == begin[i]);
  for (const int ranks : kRanks) {
    CAPTURE(ranks);
    const FlatLayout layout = FlatLayout::frozen(params, DType::bf16, ranks);
    std::map<int, int64_t> elements;
    for (int rank = 0; rank < ranks; ++rank) {
      const Tensor shard = tensor_of(bytes.data(), {layout.shard_size()});
      for (const auto& [param, first, tensor] : layout.values_in_shard(rank, shard)) {
        const auto at = static_cast<size_t>(param.index);
        CHECK(size_of(tensor.dtype) == width[at]);
        CHECK(first == elements[param.index]);
        const int64_t offset = static_cast<uint8_t*>(tensor.data) - static_cast<uint8_t*>(shard.data);
        CHECK(rank * layout.shard_size() + offset == begin[at] + first * width[at]);
        elements[param.index] += tensor.size();
      }
    }
    CHECK(elements == std::map<int, int64_t>{{0, 70}, {1, 12345}, {2, 193}});
  }
  params.add({.name = "trained", .shape = {3}, .init = {}, .dtype = DType::u8});
  CHECK(test::error_of([&] { FlatLayout::trainable(params, 1); }) ==
        "trained has a dtype of its own, must be frozen");
}
