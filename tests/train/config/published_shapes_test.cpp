#include "train/config/published_shapes.h"

#include <map>

#include "model/model.h"
#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

LoadedConfig loaded(const std::vector<std::string>& overrides, const std::string& shape,
                    const std::vector<ConfigPreset>& presets = {}) {
  write_whole_file("published_shapes_test.toml", "");
  Problems problems;
  LoadedConfig config = load_config("published_shapes_test.toml", overrides, problems, presets);
  problems.raise();
  take_published_shape(config, shape);
  return config;
}

std::string error_of(const std::vector<std::string>& overrides) {
  return test::error_of([&] { loaded(overrides, "llama-3.1-70b"); });
}

}  // namespace

TEST_CASE("every published shape has the published number of parameters") {
  const std::map<std::string, int64_t> published{
      {"gemma-2-2b", 2614341888},       {"gemma-2-9b", 9241705984},
      {"gemma-2-27b", 27227128320},     {"gpt2-124m", 124439808},
      {"gpt2-1.5b", 1557611200},        {"llama-2-7b", 6738415616},
      {"llama-2-13b", 13015864320},     {"llama-2-70b", 68976648192},
      {"llama-3.1-8b", 8030261248},     {"llama-3.1-70b", 70553706496},
      {"llama-3.2-1b", 1235814400},     {"llama-3.2-3b", 3212749824},
      {"llama-3.1-405b", 405853388800}, {"mistral-7b", 7241732096},
      {"phi-4", 14659507200},           {"qwen2.5-0.5b", 494032768},
      {"qwen2.5-1.5b", 1543714304},     {"qwen2.5-7b", 7615616512},
      {"qwen2.5-14b", 14770033664},     {"qwen2.5-32b", 32763876352},
      {"qwen2.5-72b", 72706203648},     {"qwen3-0.6b", 596049920},
      {"qwen3-8b", 8190735360},         {"qwen3-32b", 32762123264},
      {"qwen3-30b-a3b", 30532122624},   {"mixtral-8x7b", 46702792704},
      {"olmoe-1b-7b", 6919161856},      {"granite-3.0-1b-a400m", 1334628352},
      {"gpt-oss-20b", 20914757184}};
  for (const PublishedShape& shape : published_shapes()) {
    CAPTURE(shape.name);
    Arena tables("tables", Device::cpu());
    CHECK(Model(resolved(shape.model()), tables).parameter_count() == published.at(shape.name));
  }
  CHECK(published.size() == published_shapes().size());
}

TEST_CASE("a published shape replaces the model of a config, but no key of the command line and no adapter") {
  const std::vector<ConfigPreset> file{{"model.family", "\"gemma3\"", "a.toml:2"},
                                       {"model.window", "512", "a.toml:3"},
                                       {"model.init_from", "\"folder\"", "a.toml:4"},
                                       {"model.trainable", "[\"*norm*\"]", "a.toml:5"}};
  const Config c = loaded({"data.seq_len=8"}, "llama-3.1-70b", file).config;
  CHECK(c.model.family == "llama");
  CHECK(c.model.layers == 80);
  CHECK(!c.model.window);
  CHECK(c.init_from.empty());
  CHECK(c.trainable == std::vector<std::string>{"*norm*"});
  CHECK(c.data.seq_len == 8);
  CHECK(test::missing_from(error_of({"model.layers=4"}), {"--model.layers", "--model llama-3.1-70b"}) == "");
  CHECK(test::missing_from(error_of({"model.adapter=folder"}), {"model.adapter", "remove it"}) == "");
}
