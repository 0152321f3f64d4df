#include "train/step/losses.h"

#include "tests/test.h"
#include "train/step/training_runtime.h"

using namespace flatshard;

namespace {

constexpr const char* kPath = "evaluation_test.tok";
constexpr int64_t kVocab = 61, kLength = 12, kBatches = 5;

Config small_config() {
  Config c;
  c.model = {.family = "llama", .layers = 1, .hidden = 20, .heads = 2, .ffn = 28, .vocab = kVocab};
  c.data.train = c.data.eval = kPath;
  c.data.seq_len = kLength;
  c.train.total_batch_size = 2;
  c.train.batch_size_per_device = 2;
  c.train.eval_every = 1;
  c.optimizer.lr = 1e-2;
  c.precision.compute = Precision::fp32;
  return c;
}

}  // namespace

TEST_CASE("an interrupted evaluation stops after the batch and has no loss") {
  TokenWriter writer(kPath, kVocab);
  std::vector<int32_t> tokens(2 * kBatches * kLength + 1);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % kVocab);
  writer.add_document(tokens);
  writer.finish();
  const TokenFile file(kPath);
  const Data data(file, {.seq_len = kLength, .lane_sequences = 2, .total_sequences = 2, .shuffle = false});
  REQUIRE(data.steps_per_epoch() == kBatches);
  World world;
  const RunSetup setup = set_up(small_config(), 1);
  TrainingRuntime runtime(setup, world);
  runtime.engine().initialize();
  // With a stop request during this batch, counted from 1; 0: none.
  int64_t done = 0;
  const auto loss = [&](int64_t request) {
    done = 0;
    const auto found =
        evaluation_loss(runtime.engine(), {}, data, kPath, world, [&] { return ++done == request; });
    return found ? std::optional(found->mean) : std::nullopt;
  };
  const std::optional<double> whole = loss(0);
  REQUIRE(whole);
  CHECK(done == kBatches);
  CHECK_FALSE(loss(2));
  CHECK(done == 2);
  CHECK(loss(kBatches) == whole);  // it was complete
}
