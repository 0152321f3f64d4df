#include "train/report/untrained_tokens.h"

#include <filesystem>
#include <functional>

#include "tests/process.h"
#include "tests/small_model.h"
#include "tests/test.h"
#include "tests/tools/inference/talking_model.h"

using namespace flatshard;

namespace {

using Change = std::function<void(float* embedding, int64_t width)>;

// A new folder with a talking model whose embedding `change` modifies.
void write_changed_model(const std::string& folder, const Change& change) {
  std::filesystem::remove_all(folder);
  test::write_talking_model(folder);
  StreamSet streams(Device::cpu());
  const ResidentModel model(read_hf_config(folder + "/config.json"), DType::f32, streams.add("compute"));
  test::fill_random(model);
  const auto& specs = model.model().param_lists()[0].specs();
  REQUIRE(specs[0].name == "model.embed_tokens.weight");
  change(model.parameters()[0][0].as<float>(), specs[0].shape[1]);
  test::write_model_folder(folder, model);
}

std::vector<int64_t> untrained_in(const std::string& folder, int64_t vocab = test::kTalkingVocab,
                                  std::optional<VisionConfig> vision = {}) {
  ModelConfig config = read_hf_config(folder + "/config.json");
  config.vocab = vocab;
  Arena tables("tables", Device::cpu());
  const Model model(config, tables);
  PublishedWeights weights(folder, model, test::kTalkingVocab);
  config.vision = vision;
  return untrained_tokens(weights, config);
}

void set_row(float* embedding, int64_t width, int64_t row, float value) {
  std::fill_n(embedding + row * width, width, value);
}

}  // namespace

TEST_CASE("rows of zeros, rows equal to another and rows near the mean look untrained") {
  write_changed_model("untrained_rows", [](float* embedding, int64_t width) {
    set_row(embedding, width, 3, 0);
    set_row(embedding, width, 20, 1e-3f);
    std::copy_n(embedding + 40 * width, width, embedding + 97 * width);
    for (int64_t i = 0; i < width; ++i) {
      double sum = 0;
      for (int64_t row = 0; row < test::kTalkingVocab; ++row) sum += embedding[row * width + i];
      embedding[60 * width + i] = static_cast<float>(sum / test::kTalkingVocab);
    }
  });
  CHECK(untrained_in("untrained_rows") == std::vector<int64_t>{3, 20, 40, 60, 97});
  CHECK(untrained_in("untrained_rows", 99) == std::vector<int64_t>{3, 20, 40, 60, 97, 98});  // it grows
  CHECK(untrained_in("untrained_rows", test::kTalkingVocab, VisionConfig{.image_token = 20}) ==
        std::vector<int64_t>{3, 40, 60, 97});
  write_changed_model("untrained_rows", [](float*, int64_t) {});
  CHECK(untrained_in("untrained_rows").empty());
}

TEST_CASE("a run whose data contains untrained tokens warns of them once, and resumes without a warning") {
  const std::string folder = "untrained_run", in = "cd untrained_run && ";
  write_changed_model(folder + "/model", [](float* embedding, int64_t width) {
    for (const int64_t row : {3, 96, 97}) set_row(embedding, width, row, 0);
  });
  test::write_text(
      folder + "/chats.jsonl",
      R"({"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]})"
      "\n");
  test::write_text(folder + "/config.toml", R"(
[model]
init_from = "model"
[data]
train = "chats.jsonl"
seq_len = 40
packing = "none"
chat_template = "chatml"
[train]
steps = 1
total_batch_size = 2
[checkpoint]
save_every = 1
[optimizer]
lr = 1e-3
[precision]
compute = "fp32"
)");
  const int ranks = test::no_ranks_because().empty() ? 2 : 1;
  const test::Finished run =
      test::run_command(in + test::launcher(ranks) + "@train config.toml --run.dir=run");
  CHECK_MESSAGE(run.exit_code == 0, run.output);
  const std::string warning =
      ".tok contains tokens whose embeddings in model look untrained: 96 \"<|im_start|>\" (2 times), "
      "97 \"<|im_end|>\" (2 times); the model learns them from this data alone: ";
  CHECK_MESSAGE(run.output.find(warning) != std::string::npos, run.output);
  CHECK(run.output.find(warning) == run.output.rfind(warning));
  const test::Finished adapted = test::run_command(in + "@train config.toml --run.dir=adapted --lora.rank=2");
  CHECK_MESSAGE(
      adapted.output.find("; adapters do not train them: set lora.save_modules = ") != std::string::npos,
      adapted.output);
  const test::Finished on =
      test::run_command(in + "@train config.toml --run.dir=run --train.steps=2 --resume run/step-1");
  CHECK_MESSAGE(on.exit_code == 0, on.output);
  CHECK(on.output.find("untrained") == std::string::npos);
}
