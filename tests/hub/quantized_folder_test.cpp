// Model folders with 4-bit weights that transformers and bitsandbytes wrote
// (tests/golden/quantized_folders.py).

#include <cstring>
#include <filesystem>

#include "hub/adapted_model.h"
#include "source_dir.h"
#include "tests/model/small_run.h"
#include "tests/tensor_contents.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

// f32 sums in another order than the other framework's.
constexpr double kF32 = 1e-5;

const std::string kGolden = str(kSourceDir, "/tests/golden/quantized_folders/");
const std::vector<std::string> kNames{"llama", "mistral", "qwen2", "qwen3", "gpt2"};
const std::string kFolder = "quantized_folder_test", kWeights = kFolder + "/model.safetensors";

// What opening a copy of a folder with changed tensors fails with, without "FILE: ".
template <class Change>
std::string error_with(const std::string& name, Change&& change) {
  fs::remove_all(kFolder);
  fs::copy(kGolden + name, kFolder);
  test::TensorContents contents = test::read_contents(kWeights);
  change(contents);
  test::write_contents(kWeights, contents);
  Arena tables("tables", Device::cpu());
  const ModelConfig config = read_hf_config(kFolder + "/config.json");
  const std::string error =
      test::error_of([&] { PublishedWeights(kFolder, Model(config, tables), config.vocab); });
  return error.starts_with(kWeights + ": ") ? error.substr(kWeights.size() + 2) : error;
}

}  // namespace

TEST_CASE("4-bit folders give the logits and the loss that transformers computes from their values") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    const auto expected = test::load_golden("quantized_folders/" + name + "/expected");
    const ModelConfig config = read_hf_config(kGolden + name + "/config.json");
    test::SmallRun run(config, expected, DType::f32, false,
                       [&](const Model& model, const ParamTensors& parameters, Stream& stream) {
                         read_model_weights(kGolden + name, model, parameters, stream);
                       });
    CHECK(run.loss() == doctest::Approx(expected.at("loss").values[0]).epsilon(kF32));
    CHECK(bench::max_error(run.logits(), expected.at("logits").values) < kF32);
  }
}

TEST_CASE("a model keeps the 4-bit weights of its folder, and computes the same with them") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    const auto expected = test::load_golden("quantized_folders/" + name + "/expected");
    ModelConfig config = read_model_config(kGolden + name);
    CHECK(config.quantized.size() == (name == "llama" ? 7 : name == "qwen3" ? 11 : name == "gpt2" ? 8 : 14));
    CHECK(config.quantized.begin()->second.compute == (name == "llama" ? DType::bf16 : DType::f32));
    for (auto& [path, format] : config.quantized) format.compute = DType::f32;
    test::SmallRun run(config, expected, DType::f32, false,
                       [&](const Model& model, const ParamTensors& parameters, Stream& stream) {
                         read_model_weights(kGolden + name, model, parameters, stream);
                       });
    CHECK(run.loss() == doctest::Approx(expected.at("loss").values[0]).epsilon(kF32));
    CHECK(bench::max_error(run.logits(), expected.at("logits").values) < kF32);
  }
}

TEST_CASE("a quantization_config without 4-bit weights is an error") {
  fs::remove_all(kFolder);
  fs::copy(kGolden + "mistral", kFolder);
  fs::copy_file(str(kSourceDir, "/tests/golden/folders/mistral/model.safetensors"), kWeights,
                fs::copy_options::overwrite_existing);
  CHECK(test::error_of([] { read_model_config(kFolder); }) ==
        kFolder + "/config.json: has quantization_config, but " + kWeights +
            " has no 4-bit weights: remove it, or download all files of the folder again");
}

TEST_CASE("any range of a dequantized weight has the same values, transposed ones too") {
  for (const auto& [name, weight] : {std::pair{"llama", "model.layers.0.mlp.down_proj.weight"},
                                     {"gpt2", "transformer.h.0.attn.c_attn.weight"}}) {
    Arena tables("tables", Device::cpu());
    const ModelConfig config = read_hf_config(kGolden + name + "/config.json");
    PublishedWeights weights(kGolden + name, Model(config, tables), config.vocab);
    const int64_t size = 3072;
    std::vector<float> whole(size), pieces(size);
    weights.read(weight, 0, size, whole.data());
    for (int64_t first = 0; first < size; first += 77)
      weights.read(weight, first, std::min<int64_t>(77, size - first), &pieces[static_cast<size_t>(first)]);
    CHECK(whole == pieces);
  }
}

TEST_CASE("a 4-bit folder describes its dtypes and formats") {
  Arena tables("tables", Device::cpu());
  const ModelConfig config = read_hf_config(kGolden + "llama/config.json");
  const PublishedWeights weights(kGolden + "llama", Model(config, tables), config.vocab);
  CHECK(weights.describe() == kGolden + "llama/model.safetensors, 4-bit nf4, nested scales, BF16");
}

TEST_CASE("4-bit weights that do not match config.json are named") {
  const std::string up = "model.layers.0.mlp.up_proj.weight", down = "model.layers.0.mlp.down_proj.weight";
  CHECK(error_with("mistral", [](auto&) {}) == "");
  CHECK(error_with("mistral",
                   [&](test::TensorContents& all) {
                     for (const char* part : {"", ".absmax", ".quant_map", ".quant_state.bitsandbytes__nf4"})
                       std::swap(all[up + part], all[down + part]);
                   }) ==
        "the tensors do not match config.json; 2 with a wrong shape: " + up +
            " [32, 48] instead of [48, 32], " + down +
            " [48, 32] instead of [32, 48]: download all files of the folder again, from one model");
  CHECK(error_with("mistral", [&](test::TensorContents& all) {
          for (const char* part : {"", ".absmax", ".quant_map", ".quant_state.bitsandbytes__nf4"})
            all.erase(up + part);
        }).starts_with("the tensors do not match config.json; 1 missing: " + up));
  CHECK(error_with("mistral", [&](test::TensorContents& all) { test::shorten(all[up + ".absmax"]); }) ==
        up + ".absmax is F32 [23], but for 48 x 32 elements in blocks of 64 it must be F32 [24]");
  CHECK(error_with("mistral", [&](test::TensorContents& all) { all[up + ".extra"] = all[up + ".absmax"]; }) ==
        "the tensors do not match config.json; 1 unexpected: " + up +
            ".extra: download all files of the folder again, from one model");
}
