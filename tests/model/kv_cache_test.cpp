#include "model/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/bf16_products.h"
#include "runtime/rng.h"
#include "tests/small_model.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int64_t kLength = 23;  // more than four windows of mistral's 5

// Products of one row and of many rows sum in different orders, which in bf16 occasionally changes the
// rounding of an element. A missing key or a position that is off by one changes a logit by more than 0.1.
constexpr double kTolerance = 1e-5, kBf16Tolerance = 0.02;

using Pieces = std::vector<int64_t>;

// Wide enough that products of one row take their own code path.
ModelConfig wide_model(const std::string& family) {
  ModelConfig c = test::small_model(family);
  c.hidden = 320;
  c.ffn = 900;
  return c;
}

// A model of one family that computes the logits of every token of one text.
class Reader {
 public:
  Reader(const std::string& family, DType dtype) : model_(wide_model(family), dtype, stream_) {
    test::fill_random(model_, 0.05f);
  }

  // With a cache the pieces of a text are read one after another; without one the text is a single piece.
  std::vector<float> logits(const Pieces& pieces, bool cached) {
    const ModelConfig& config = model_.model().config();
    memory_ = Arena("memory", Device::cpu());
    StreamSet planning(Device::cpu(), {.planning = true});
    read(planning.add("compute"), pieces, cached);
    memory_.commit({.poison = true});
    read(stream_, pieces, cached);
    return {all_.as<float>(), all_.as<float>() + kLength * config.vocab};
  }

 private:
  void read(Stream& stream, const Pieces& pieces, bool cached) {
    const ModelConfig& config = model_.model().config();
    all_ = memory_.alloc(DType::f32, {kLength, config.vocab});
    KvCache cache;
    if (cached) cache = KvCache(config, 1, kLength, model_.dtype(), memory_);
    int64_t first = 0;
    for (const int64_t n : pieces) {
      const ArenaScope scope(memory_);
      read_piece(stream, first, n, cached ? &cache : nullptr);
      if (cached) cache.advance(0, n);
      first += n;
    }
    REQUIRE(first == kLength);
  }

  void read_piece(Stream& stream, int64_t first, int64_t n, const KvCache* cache) {
    const TextRows rows{0, n};
    LayerCall c{.stream = stream,
                .scratch = memory_,
                .saved = memory_,
                .tokens = memory_.alloc(DType::i32, {n}),
                .positions = memory_.alloc(DType::i32, {n}),
                .boundaries = memory_.alloc(DType::i32, {2}),
                .targets = {},
                .target_weights = {},
                .losses = {},
                .dtype = model_.dtype(),
                .cache = cache,
                .texts = {&rows, 1},
                .text_boundaries = memory_.alloc(DType::i32, {1, 4}),
                .logits = all_.slice(first, first + n)};
    if (!stream.planning()) fill(c, first, n);
    Model& model = model_.model();
    Tensor x = memory_.alloc(c.dtype, {n, model.config().hidden}), y = memory_.alloc(c.dtype, x.shape);
    for (int i = model.embedding_layer(); i < model.layer_count(); ++i) {
      model.layer(i).forward(c, model_.view(i), y, x);
      std::swap(x, y);
    }
  }

  void fill(const LayerCall& c, int64_t first, int64_t n) const {
    const RandomStream random(3, "text");
    const uint32_t vocab = static_cast<uint32_t>(model_.model().config().vocab);
    for (int64_t i = 0; i < n; ++i) {
      c.tokens.as<int32_t>()[i] = static_cast<int32_t>(random.bits(first + i) % vocab);
      c.positions.as<int32_t>()[i] = static_cast<int32_t>(first + i);
    }
    c.boundaries.as<int32_t>()[0] = 0;
    c.boundaries.as<int32_t>()[1] = static_cast<int32_t>(n);
  }

  StreamSet streams_{Device::cpu()};
  Stream& stream_ = streams_.add("compute");
  ResidentModel model_;
  Arena memory_{"memory", Device::cpu()};
  Tensor all_;
};

// The largest difference, relative to the largest logit.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::isnan(a[i]) ? INFINITY : std::max(worst, std::abs(double{a[i]} - double{b[i]}));
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return worst / largest;
}

}  // namespace

TEST_CASE("a text read into an empty cache has the bits of a pass without one") {
  for (const Family& f : families())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(f.name);
      Reader reader(f.name, dtype);
      CHECK(reader.logits({kLength}, true) == reader.logits({kLength}, false));
    }
}

TEST_CASE("a text read in pieces of any size has the logits of one full pass") {
  const Pieces one_by_one(kLength, 1);
  for (const Family& f : families())
    for (const auto& [dtype, way] : {std::pair{DType::f32, Bf16Products::native},
                                     {DType::bf16, Bf16Products::native},
                                     {DType::bf16, Bf16Products::widened}}) {
      const ScopedBf16Products scope(way);
      Reader reader(f.name, dtype);
      const std::vector<float> whole = reader.logits({kLength}, false);
      for (const Pieces& pieces :
           {one_by_one, Pieces{22, 1}, Pieces{1, 22}, Pieces{7, 9, 4, 3}, Pieces{2, 1, 20}}) {
        CAPTURE(f.name);
        CAPTURE(name_of(dtype));
        CAPTURE(pieces.size());
        CHECK(difference(reader.logits(pieces, true), whole) <
              (dtype == DType::f32 ? kTolerance : kBf16Tolerance));
      }
    }
}

TEST_CASE("a KV cache refuses tokens beyond its capacity, and a rewind beyond its length") {
  const ModelConfig config = test::small_model("llama");
  Arena arena("cache", Device::cpu());
  KvCache cache(config, 2, 10, DType::bf16, arena);
  CHECK(arena.peak() >= 2 * 2 * config.layers * 10 * config.kv_heads * config.head_dim * 2);
  cache.advance(1, 8);
  CHECK(test::error_of([&] { cache.advance(1, 3); }) ==
        "the KV cache holds 8 of 10 tokens and cannot advance by 3");
  cache.rewind(1, 5);
  CHECK(cache.length(1) == 5);
  CHECK(cache.length(0) == 0);
  CHECK(test::error_of([&] { cache.rewind(1, 6); }) == "the KV cache holds 5 tokens and cannot rewind to 6");
}
