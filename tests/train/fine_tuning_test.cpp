// Fine-tuning a model folder on conversations through the programs `train` and `evaluate`.

#include <filesystem>

#include "tests/process.h"
#include "tests/test.h"
#include "tests/tools/inference/talking_model.h"
#include "train/report/metrics.h"

using namespace flatshard;

namespace {

constexpr char kChats[] =
    R"({"messages": [{"role": "user", "content": "cat"}, {"role": "assistant", "content": "meow"}]})"
    "\n"
    R"({"messages": [{"role": "user", "content": "dog"}, {"role": "assistant", "content": "woof"}]})"
    "\n"
    R"({"messages": [{"role": "user", "content": "cow"}, {"role": "assistant", "content": "moo"}]})"
    "\n"
    R"({"messages": [{"role": "user", "content": "pig"}, {"role": "assistant", "content": "oink"}]})"
    "\n";

constexpr char kConfig[] = R"(
[run]
dir = "run"
[model]
init_from = "model"
[data]
train = "chats.jsonl"
eval = "chats.jsonl"
seq_len = 48
packing = "none"
chat_template = "chatml"
[train]
steps = 60
total_batch_size = 4
eval_every = 20
[optimizer]
lr = 1e-2
[precision]
compute = "fp32"
)";

double similarity_score(const std::string& in, const std::string& model) {
  const test::Finished run = test::run_command(in + "@evaluate similarity " + model +
                                               " chats.jsonl --device cpu --chat-template chatml "
                                               "--max-new-tokens 8 --force --out answers.csv");
  CHECK_MESSAGE(run.exit_code == 0, run.output);
  return std::stod(test::after(run.output, "Average semantic similarity score: "));
}

}  // namespace

TEST_CASE("fine-tuning on a few conversations lowers evaluation loss and similarity score") {
  const std::string folder = "fine_tuning", in = "cd fine_tuning && ";
  std::filesystem::remove_all(folder);
  test::write_talking_model(folder + "/model");
  test::write_text(folder + "/chats.jsonl", kChats);
  test::write_text(folder + "/config.toml", kConfig);
  const double before = similarity_score(in, "model");
  CHECK(before > 0.3);
  const test::Finished run = test::run_command(in + "@train config.toml");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);

  std::vector<double> losses;
  for (const StepMetrics& m : read_metrics(folder + "/run/metrics.jsonl"))
    if (m.eval_loss) losses.push_back(*m.eval_loss);
  REQUIRE(losses.size() == 3);
  CHECK(losses[1] < losses[0]);
  CHECK(losses[2] < losses[1]);
  CHECK(losses[2] < 0.1);  // ln 98 = 4.6 for a model that knows nothing

  CHECK(similarity_score(in, "run/model") < 0.1 * before);
  const std::string answers = test::text_of(folder + "/answers.csv");
  for (const char* row : {"0,cat,meow,meow,", "1,dog,woof,woof,", "2,cow,moo,moo,", "3,pig,oink,oink,"})
    CHECK_MESSAGE(answers.find(row) != std::string::npos, answers);
}
