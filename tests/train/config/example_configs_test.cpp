// The configs in configs/.

#include <filesystem>
#include <map>

#include "source_dir.h"
#include "tests/test.h"
#include "train/step/training_runtime.h"

using namespace flatshard;
namespace fs = std::filesystem;

TEST_CASE("every example config loads, and its model has the published number of parameters") {
  const std::map<std::string, int64_t> published{
      {"gpt2-124m", 124439808},   {"qwen2-0.5b", 494032768}, {"qwen3-0.6b", 596049920},
      {"mistral-7b", 7241732096}, {"llama3-8b", 8030261248}, {"pipeline-llama3-8b", 8030261248},
      {"tiny", 1311872},          {"experts-tiny", 2299264}};
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(kSourceDir) / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    const Config config = load_config(entry.path().string(), {}).config;
    if (!config.init_from.empty()) continue;  // the folder decides the model
    const RunSetup setup = set_up(config, static_cast<int>(config.parallel.stages));
    Arena tables("tables", Device::cpu());
    CHECK(Model(setup.model, tables).parameter_count() == published.at(name));
    ++count;
  }
  CHECK(count == published.size());
}

TEST_CASE("an example of every family plans its memory without allocating any") {
  World world;
  const int64_t live = memory_counters().live_bytes;
  for (const char* name : {"tiny", "gpt2-124m", "qwen2-0.5b", "qwen3-0.6b", "mistral-7b"}) {
    CAPTURE(name);
    const std::string path = str(kSourceDir, "/configs/", name, ".toml");
    const RunPlan plan = plan_run(set_up(load_config(path, {}).config, 1), 0);
    CHECK(plan.memory_bytes > 0);
    CHECK(memory_counters().live_bytes == live);
  }
}
