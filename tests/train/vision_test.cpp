// Runs of models that read images, through the program train.

#include <cmath>
#include <fstream>

#include "checkpoint/tensor_difference.h"
#include "checkpoint/tensor_folder.h"
#include "hub/model_folder.h"
#include "runtime/json.h"
#include "tests/test.h"
#include "tests/text/data/image_tokens.h"
#include "tests/train/image_workshop.h"
#include "train/report/metrics.h"

using namespace flatshard;

namespace {

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

const std::string kOptions = " --model.init_from=model --train.steps=3 --train.eval_every=2 ";

bool reads_images(const std::string& parameter) {
  for (const char* part : {"model.vision_model.", "model.connector.", "visual."})
    if (parameter.starts_with(part)) return true;
  return false;
}

}  // namespace

TEST_CASE("models that read images have the same bits on any number of ranks and stages") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  for (const std::string family : {"idefics2", "idefics3", "qwen2_vl", "qwen2_5_vl"}) {
    CAPTURE(family);
    const test::Workshop workshop = test::workshop_with("vision_" + family, test::model_for_workshop(family));
    const test::Finished whole = workshop.train(1, kOptions + "--run.dir=whole");
    REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
    const auto same = [&](int ranks, const std::string& options) {
      CAPTURE(options);
      const test::Finished run = workshop.train(ranks, kOptions + options + " --run.dir=other");
      CHECK_MESSAGE(hash_of(run) == hash_of(whole), run.output);
    };
    same(2, "--parallel.strategy=no_shard --train.recompute=true");
    same(4,
         "--parallel.strategy=hybrid --parallel.group_size=2 --parallel.wrap=size --parallel.wrap_size=500");
    if (family == "idefics2" || family == "qwen2_vl") continue;  // the others have their layers, and more
    same(2, "--parallel.offload=true --parallel.wrap=attention_mlp");
    same(2, "--parallel.stages=2");
    same(4, "--parallel.stages=2 --parallel.schedule=interleaved --train.recompute=true");
  }
}

namespace {

void check_runs_on_images(const test::Workshop& workshop) {
  const std::string options =
      " --model.vocab=100 --model.init_from=model --data.train=images.tok --data.eval=images.tok "
      "--data.packing=none --data.max_patches=40 --precision.compute=fp32 --train.steps=4 "
      "--checkpoint.save_every=2 ";
  const test::Finished whole = workshop.train(1, options + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  CHECK(whole.output.find("MFLOP with causal attention, without images\n") != std::string::npos);
  const auto same = [&](int ranks, const std::string& more) {
    CAPTURE(more);
    const test::Finished run = workshop.train(ranks, options + more);
    CHECK_MESSAGE(hash_of(run) == hash_of(whole), run.output);
  };
  same(4, "--run.dir=four --train.recompute=true --data.max_patches=43");  // those of whole squares count
  same(2, "--run.dir=stages --parallel.stages=2");
  same(2, "--run.dir=resumed --resume whole/step-2 --parallel.strategy=no_shard");
  // evaluate reads them, too, in windows of its own.
  const double trained = read_metrics(workshop.file("whole/metrics.jsonl")).back().eval_loss.value();
  const test::Finished evaluated =
      test::run_command("cd " + workshop.file(".") + " && @evaluate loss whole images.tok --device cpu");
  CHECK_MESSAGE(std::abs(std::stod(test::after(evaluated.output, "loss ")) / trained - 1) < 1e-5,
                evaluated.output);
  // Images matter: every parameter that reads them has changed.
  const TensorFolder before(workshop.file("model"), kWeightsStem),
      after(workshop.file("whole/model"), kWeightsStem);
  for (const auto& [name, entry] : before.entries()) {
    CAPTURE(name);
    if (reads_images(name)) CHECK_FALSE(same_bits(*entry, *after.entries().at(name)));
  }
}

}  // namespace

TEST_CASE("training on images has the same bits on ranks of which some have none, and resumes") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  for (const std::string family : {"idefics2", "idefics3", "qwen2_5_vl"}) {
    CAPTURE(family);
    check_runs_on_images(test::workshop_with_images("vision_images_" + family, family));
  }
}

TEST_CASE("evaluate has the losses of documents that end with an image") {
  for (const std::string family : {"idefics3", "qwen2_5_vl"}) {
    CAPTURE(family);
    const test::Workshop workshop = test::workshop_with_images("vision_ends_" + family, family);
    const std::string a = test::picture("rgb_8.png");
    test::write_image_tokens(workshop.file("ends.tok"),
                             {{{a, a}, 0}, {{a, a}, 5}, {{a}, 3}, {{a}, 0}, {{}, 4}}, test::input_of(family));
    const test::Finished run = test::run_command(
        "cd " + workshop.file(".") +
        " && @evaluate logprobs model ends.tok --seq-len 40 --out lines.jsonl --device cpu");
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    std::ifstream file(workshop.file("lines.jsonl"));
    std::vector<std::vector<double>> documents;
    for (std::string line; std::getline(file, line);) {
      const auto values = nlohmann::json::parse(line)["logprobs"];
      documents.emplace_back(values.begin() + 1, values.end());
    }
    REQUIRE(documents.size() == 5);
    // A document has the values of a longer one that begins with it.
    for (const auto& [part, whole] : {std::pair{0, 1}, {2, 1}, {3, 2}}) {
      const auto &less = documents[static_cast<size_t>(part)], &more = documents[static_cast<size_t>(whole)];
      const size_t common = part == 2 ? documents[3].size() : less.size();
      REQUIRE(common < more.size());
      for (size_t i = 0; i < common; ++i) CHECK(less[i] == doctest::Approx(more[i]).epsilon(1e-5));
    }
    CHECK(documents[4].size() == 3);
  }
}

TEST_CASE("without images the layers that read them stay as they are") {
  const test::Workshop workshop = test::workshop_with("vision_text", test::model_for_workshop("idefics2"));
  const test::Finished run = workshop.train(1, kOptions + "--optimizer.weight_decay=0 --run.dir=run");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  const TensorFolder before(workshop.file("model"), kWeightsStem),
      after(workshop.file("run/model"), kWeightsStem);
  int64_t images = 0, texts = 0;
  for (const auto& [name, entry] : before.entries()) {
    CAPTURE(name);
    const SafetensorsEntry& now = *after.entries().at(name);
    CHECK(same_bits(*entry, now) == reads_images(name));
    ++(reads_images(name) ? images : texts);
  }
  CHECK(images > 0);
  CHECK(texts > 0);
}

TEST_CASE("models that read images are refused in pipeline stages with tied embeddings") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  ModelConfig tied = test::model_for_workshop("idefics3");
  tied.tied = true;
  const test::Workshop workshop = test::workshop_with("vision_tied", tied);
  const test::Finished run = workshop.train(2, kOptions + "--parallel.stages=2 --run.dir=refused");
  CHECK(run.exit_code == 1);
  CHECK_MESSAGE(run.output.find("with tied embeddings: set it to 1") != std::string::npos, run.output);
}

TEST_CASE("adapters and 4-bit weights of a model that reads images have the same bits on two ranks") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop =
      test::workshop_with("vision_adapters", test::model_for_workshop("idefics2"));
  const std::string lora =
      kOptions +
      "--quant.base=nf4 --lora.rank=2 --lora.targets='.*(text_model|connector|vision_model).*"
      "(q_proj|v_proj|gate_proj|down_proj|fc1)' ";
  const test::Finished whole = workshop.train(1, lora + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  const test::Finished sharded = workshop.train(2, lora + "--run.dir=sharded");
  CHECK_MESSAGE(hash_of(sharded) == hash_of(whole), sharded.output);
}
