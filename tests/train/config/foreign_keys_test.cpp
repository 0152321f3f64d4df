#include "train/config/foreign_keys.h"

#include <algorithm>
#include <regex>
#include <set>

#include "tests/test.h"
#include "train/config/unknown_key.h"

using namespace flatshard;

namespace {

const std::vector<Field>& known() {
  static Config config;
  static const std::vector<Field> all = fields(config);
  return all;
}

bool is_known(const std::string& key) {
  return std::any_of(known().begin(), known().end(), [&](const Field& f) { return f.key == key; });
}

std::string message(const std::string& key) { return unknown_key(known(), key).message; }

}  // namespace

TEST_CASE("every spelling of another trainer leads to a key that exists") {
  std::set<std::string> spellings;
  for (const ForeignKey& row : foreign_keys()) {
    CAPTURE(row.spelling);
    CHECK(spellings.insert(row.spelling).second);
    CHECK_FALSE(is_known(row.spelling));
    if (*row.key)
      CHECK(is_known(row.key));
    else
      CHECK(*row.value);
    const std::string value = row.value;
    const std::regex key(
        "(run|model|lora|quant|data|train|optimizer|schedule|precision|parallel|log|checkpoint)\\.[a-z_]+");
    for (std::sregex_iterator it(value.begin(), value.end(), key), end; it != end; ++it)
      CHECK_MESSAGE(is_known(it->str()), it->str());
  }
}

TEST_CASE("another trainer's spelling is answered with our key and the meaning of its value") {
  CHECK(message("gradient_accumulation_steps") ==
        "unknown key gradient_accumulation_steps; use train.total_batch_size = ranks x "
        "batch_size_per_device x gradient_accumulation_steps (sequences per optimizer step, over all ranks)");
  CHECK(message("optimizer.learning_rate") ==
        "unknown key optimizer.learning_rate; use optimizer.lr (peak learning rate)");
  CHECK(message("zero_optimization.stage")
            .starts_with("unknown key zero_optimization.stage; use "
                         "parallel.strategy = \"no_shard\" for stage 0, "));
  CHECK(message("model.dropout") ==
        "unknown key model.dropout; there is no such setting: models are trained "
        "without dropout; adapters have lora.dropout");
  CHECK(unknown_key(known(), "n_embd").meant == "model.hidden");
  CHECK(unknown_key(known(), "compile").meant.empty());
}

TEST_CASE("a foreign spelling is recognized in any section, with dashes and capitals") {
  CHECK(foreign_key("training.Max-Steps")->key == std::string("train.steps"));
  CHECK(foreign_key("lora.r")->key == std::string("lora.rank"));
  CHECK(foreign_key("r") == nullptr);
  CHECK(foreign_key("train.step") == nullptr);
}

TEST_CASE("a misspelt key of ours leads to the nearest one") {
  CHECK(message("train.stps") == "unknown key train.stps; the nearest known one is train.steps");
  CHECK(message("warmup_ratio") ==
        "unknown key warmup_ratio; the nearest known one is schedule.warmup_ratio");
}
