#include "hub/model_folder.h"

#include <cstring>
#include <filesystem>

#include "bench/case.h"
#include "hub/adapted_model.h"
#include "runtime/whole_file.h"
#include "source_dir.h"
#include "tests/small_model.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

const std::string kFolder = "model_folder_test";
const std::string kWeights = kFolder + "/model.safetensors";

struct OnCpu {
  StreamSet streams{Device::cpu()};
  Stream& stream = streams.add("compute");
};

std::vector<double> all_values(const ResidentModel& model) {
  std::vector<double> all;
  for (const std::vector<Tensor>& unit : model.parameters())
    for (const Tensor& tensor : unit) {
      const std::vector<double> values = bench::to_doubles(tensor);
      all.insert(all.end(), values.begin(), values.end());
    }
  return all;
}

// A file of tensors that hold only ones.
void write_ones(const std::vector<SafetensorsSpec>& specs) {
  const SafetensorsLayout layout(specs);
  SafetensorsWriter writer(kWeights, layout, true);
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::vector<float> ones(static_cast<size_t>(layout.elements(i)), 1.0f);
    writer.write(i, 0, ones.data(), layout.elements(i));
  }
  writer.finish();
}

std::string error_reading(const ResidentModel& model, Stream& stream) {
  return test::error_of([&] { read_model_weights(kFolder, model.model(), model.parameters(), stream); });
}

}  // namespace

TEST_CASE("a model of each family round-trips through a folder bit for bit") {
  OnCpu cpu;
  for (const Family& f : families())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      CAPTURE(f.name);
      const ResidentModel written(test::small_model(f.name), dtype, cpu.stream);
      test::fill_random(written);
      test::write_model_folder(kFolder, written);
      const ResidentModel read(read_hf_config(kFolder + "/config.json"), dtype, cpu.stream);
      read_model_weights(kFolder, read.model(), read.parameters(), cpu.stream);
      CHECK(all_values(read) == all_values(written));
    }
}

TEST_CASE("weights are converted to the dtype that is asked for") {
  OnCpu cpu;
  const ModelConfig config = test::small_model("qwen3");
  const ResidentModel exact(config, DType::f32, cpu.stream), rounded(config, DType::bf16, cpu.stream);
  test::fill_random(exact);
  test::fill_random(rounded);
  test::write_model_folder(kFolder, exact);
  const ResidentModel narrow(config, DType::bf16, cpu.stream), wide(config, DType::f32, cpu.stream);
  read_model_weights(kFolder, narrow.model(), narrow.parameters(), cpu.stream);
  CHECK(all_values(narrow) == all_values(rounded));
  test::write_model_folder(kFolder, rounded);
  read_model_weights(kFolder, wide.model(), wide.parameters(), cpu.stream);
  CHECK(all_values(wide) == all_values(rounded));
}

TEST_CASE("weights that do not match the config are named") {
  OnCpu cpu;
  const ResidentModel model(test::small_model("llama"), DType::f32, cpu.stream);
  test::write_model_folder(kFolder, model);
  std::vector<SafetensorsSpec> specs = weight_specs(model.model(), DType::f32);
  specs.back().name = "head";
  specs.front().shape = {40, 8};
  write_ones(specs);
  CHECK(error_reading(model, cpu.stream) ==
        kWeights +
            ": the tensors do not match config.json; 1 missing: lm_head.weight; 1 with a wrong shape: "
            "model.embed_tokens.weight [40, 8] instead of [40, 16]; 1 unexpected: head: download all files "
            "of the folder again, from one model");
  write_ones({});
  CHECK(error_reading(model, cpu.stream).find("21 missing: model.embed_tokens.weight, ") !=
        std::string::npos);
  CHECK(error_reading(model, cpu.stream).find(", ...: download") != std::string::npos);
  specs = weight_specs(model.model(), DType::i32);
  write_ones(specs);
  CHECK(error_reading(model, cpu.stream) == kWeights + ": lm_head.weight is I32, must be F32, BF16 or F16");
  std::filesystem::remove(kWeights);
  CHECK(error_reading(model, cpu.stream) == kWeights + ": cannot open: No such file or directory");
}

TEST_CASE("joined parameters of a resident model are one matrix, whatever their ranks and dtype") {
  ModelConfig config{.family = "llama", .layers = 2, .hidden = 15, .heads = 3, .ffn = 7, .vocab = 11};
  config.head_dim = 2;
  for (const char* layer : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.up_proj"})
    config.adapters[str("model.layers.1.", layer)] = {.rank = std::ssize(config.adapters) + 1, .scale = 2};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    OnCpu cpu;
    const ResidentModel model(resolved(config), dtype, cpu.stream);
    std::vector<Shape> matrices;
    for (size_t l = 0; l < model.parameters().size(); ++l) {
      const std::vector<ParamSpec>& specs = model.model().param_lists()[l].specs();
      for (int i = 0; i < std::ssize(specs); ++i)
        if (specs[static_cast<size_t>(i)].joined && !specs[static_cast<size_t>(i) - 1].joined) {
          std::vector<ParamId> ids{{i - 1}, {i}};
          for (int next = i + 1; next < std::ssize(specs) && specs[static_cast<size_t>(next)].joined; ++next)
            ids.push_back({next});
          matrices.push_back(ParamView(model.parameters()[l]).joined(ids).shape);
        }
    }
    CHECK(matrices == std::vector<Shape>{{1 + 2 + 3, 15}});
  }
}

TEST_CASE("extra tensors of older files are ignored") {
  OnCpu cpu;
  const ResidentModel model(test::small_model("gpt2"), DType::f32, cpu.stream);
  test::write_model_folder(kFolder, model);
  std::vector<SafetensorsSpec> specs = weight_specs(model.model(), DType::f32);
  for (SafetensorsSpec& spec : specs) spec.name = spec.name.substr(std::strlen("transformer."));
  specs.push_back({"h.0.attn.bias", DType::f32, {1, 1, 64, 64}});
  specs.push_back({"lm_head.weight", DType::f32, {40, 16}});
  write_ones(specs);
  CHECK(error_reading(model, cpu.stream) == "");
  CHECK(all_values(model) == std::vector<double>(all_values(model).size(), 1.0));
  specs.back().shape = {41, 16};
  write_ones(specs);
  CHECK(error_reading(model, cpu.stream).find("; 1 unexpected: lm_head.weight: ") != std::string::npos);
}

TEST_CASE("tensors of blocks that predict more tokens at once are left out, and counted") {
  const std::string published = str(kSourceDir, "/tests/golden/folders/glm4_moe"),
                    folder = "model_folder_mtp";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(published, folder);
  std::string config = read_whole_file(published + "/config.json", 1 << 20);
  const std::string layers = "\"num_hidden_layers\": 2";
  REQUIRE(config.find(layers) != std::string::npos);
  config.replace(config.find(layers), layers.size(), "\"num_hidden_layers\": 1");
  write_whole_file(folder + "/config.json", config);
  const ModelConfig c = read_hf_config(folder + "/config.json");
  Arena tables("tables", Device::cpu());
  const PublishedWeights weights(folder, Model(c, tables), c.vocab);
  const std::string text = weights.describe();
  const size_t at = text.find(", without ");
  REQUIRE(at != std::string::npos);
  const int64_t count = std::stoll(text.substr(at + 10));
  CHECK(count > 30);  // those of 8 experts, of attention and of norms
  CHECK(text.ends_with(" tensors of blocks that predict more tokens at once"));
}
