// ckpt on folders with 4-bit weights: made here, and by transformers and bitsandbytes
// (tests/golden/quantized_folders.py).

#include <filesystem>

#include "hub/adapted_model.h"
#include "runtime/json.h"
#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/tensor_contents.h"
#include "tests/test.h"
#include "tests/tools/ckpt/ckpt_run.h"

using namespace flatshard;
using namespace flatshard::test;
namespace fs = std::filesystem;

namespace {

const std::string kGolden = str(kSourceDir, "/tests/golden/");

std::string base(const std::string& name) { return kGolden + "folders/" + name; }
std::string quantized(const std::string& name) { return kGolden + "quantized_folders/" + name; }
std::string weights(const std::string& folder) { return folder + "/model.safetensors"; }

// An empty folder for a test.
std::string new_folder(const std::string& name) {
  fs::remove_all(name);
  fs::create_directories(name);
  return name;
}

void run(const std::vector<std::string>& words) {
  const Ran ran = ckpt(words);
  CAPTURE(ran);
  REQUIRE(ran.exit_code == 0);
}

nlohmann::json quantization_of(const std::string& folder) {
  return nlohmann::json::parse(read_file(folder + "/config.json"))
      .value("quantization_config", nlohmann::json{});
}

// The names of the tensors that differ between two files, or that only one of them has.
std::set<std::string> differences(const std::string& a, const std::string& b) {
  const TensorContents left = read_contents(a), right = read_contents(b);
  std::set<std::string> names;
  for (const auto& [name, content] : left) {
    const auto other = right.find(name);
    if (other == right.end() || other->second.dtype != content.dtype ||
        other->second.shape != content.shape || other->second.bytes != content.bytes)
      names.insert(name);
  }
  for (const auto& [name, content] : right)
    if (!left.contains(name)) names.insert(name);
  return names;
}

std::vector<float> values_of(const std::string& folder, const std::string& name) {
  Arena tables("tables", Device::cpu());
  const ModelConfig config = read_hf_config(folder + "/config.json");
  const Model model(config, tables);
  PublishedWeights published(folder, model, config.vocab);
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs())
      if (spec.name == name) {
        std::vector<float> values(static_cast<size_t>(spec.shape.size()));
        published.read(name, 0, spec.shape.size(), values.data());
        return values;
      }
  return {};
}

}  // namespace

TEST_CASE("ckpt quantize writes the files that transformers and bitsandbytes write") {
  const std::string work = new_folder("ckpt_quantize");
  run({"quantize", base("mistral"), "--out", work + "/mistral", "--storage", "float32"});
  CHECK(differences(weights(work + "/mistral"), weights(quantized("mistral"))).empty());
  run({"quantize", base("qwen3"), "--out", work + "/qwen3", "--double", "--storage", "float16", "--dtype",
       "f16", "--skip", "layers.1.mlp"});
  for (const std::string& name : differences(weights(work + "/qwen3"), weights(quantized("qwen3")))) {
    CAPTURE(name);  // the map of another library, and what depends on it
    CHECK((name.ends_with(".nested_quant_map") || name.ends_with(".absmax") || has(name, ".quant_state.") ||
           name.ends_with(".nested_absmax")));
  }
  run({"quantize", base("gpt2"), work + "/gpt2"});
  TensorContents ours = read_contents(weights(work + "/gpt2")),
                 theirs = read_contents(weights(quantized("gpt2")));
  const std::string name = "transformer.h.0.attn.c_attn.weight";
  CHECK(ours[name].bytes == theirs[name].bytes);
  CHECK(ours[name].shape == std::vector<int64_t>{1536, 1});
}

TEST_CASE("ckpt quantize describes its choices in config.json, and keeps the rest of the folder") {
  const std::string work = new_folder("ckpt_quantize_config"), out = work + "/llama";
  run({"quantize", base("llama"), "--out", out, "--type", "fp4", "--block", "128", "--skip", "q_proj",
       "--skip", "model.layers.1.mlp", "--dtype", "bf16", "--shard-size", "20KB"});
  const nlohmann::json config = quantization_of(out);
  CHECK(config["bnb_4bit_quant_type"] == "fp4");
  CHECK(config["bnb_4bit_compute_dtype"] == "bfloat16");
  CHECK(config["bnb_4bit_use_double_quant"] == false);
  const std::vector<std::string> skipped{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj",
                                         "model.layers.1.mlp.gate_proj",    "model.layers.1.mlp.up_proj",
                                         "model.layers.1.mlp.down_proj",    "lm_head"};
  CHECK(config["llm_int8_skip_modules"] == skipped);
  CHECK(names_in(out).contains("model.safetensors.index.json"));
  CHECK(names_in(out).contains("tokenizer.json"));
  CHECK(ckpt({"verify", out}).exit_code == 0);
  const std::string told = ckpt({"inspect", out}).out;
  CHECK(has(told, "4-bit       9 weights: fp4, blocks of 128\n"));
  const std::string plain = ckpt({"inspect", base("llama")}).out;
  const size_t at = plain.find("; ") + 2;
  CHECK(has(told, plain.substr(at, plain.find(" parameters") - at)));
}

TEST_CASE("a 4-bit folder is exported as it is, or dequantized to a dtype") {
  const std::string work = new_folder("ckpt_quantize_export");
  for (const std::string name : {"llama", "qwen2", "gpt2"}) {
    const std::string same = work + "/" + name, wide = same + "_f32";
    run({"export", quantized(name), same});
    CHECK(differences(weights(same), weights(quantized(name))).empty());
    CHECK(read_file(same + "/config.json") == read_file(quantized(name) + "/config.json"));
    run({"diff", quantized(name), same});
    run({"export", quantized(name), wide, "--dtype", "f32"});
    CHECK(quantization_of(wide).is_null());
    CHECK(ckpt({"verify", wide}).exit_code == 0);
    const std::string weight =
        name == "gpt2" ? "transformer.h.0.attn.c_attn.weight" : "model.layers.0.mlp.down_proj.weight";
    CHECK(values_of(wide, weight) == values_of(quantized(name), weight));
    CHECK(!has(ckpt({"inspect", wide}).out, "4-bit"));
  }
}

TEST_CASE("an adapter is merged into dequantized weights, and requantized only on request") {
  const std::string work = new_folder("ckpt_quantize_merge");
  for (const std::string name : {"mistral", "qwen2", "gpt2"}) {
    const std::string adapter = kGolden + "adapters/" + name, wide = work + "/" + name + "_wide",
                      merged = work + "/" + name, expected = work + "/" + name + "_expected",
                      again = work + "/" + name + "_again";
    run({"export", quantized(name), wide, "--dtype", "f32"});
    run({"merge-adapter", wide, adapter, "--out", expected});
    run({"merge-adapter", quantized(name), adapter, "--out", merged, "--dtype", "f32"});
    CHECK(differences(weights(merged), weights(expected)).empty());
    CHECK(quantization_of(merged).is_null());
    const Ran ran =
        ckpt({"merge-adapter", quantized(name), adapter, "--out", again, "--requantize", "--force"});
    CAPTURE(ran);
    CHECK(ran.exit_code == 0);
    CHECK(has(ran.out, "with the adapter to 4 bits again, by "));
    CHECK(has(ran.out, "% of what the adapter adds (root mean square; "));
    CHECK(quantization_of(again) == quantization_of(quantized(name)));
    CHECK(ckpt({"verify", again}).exit_code == 0);
  }
  // Only the parts of the layers with adapters have changed.
  const std::set<std::string> changed =
      differences(weights(work + "/qwen2_again"), weights(quantized("qwen2")));
  CHECK(!changed.empty());
  for (const std::string& name : changed)
    CHECK((has(name, "layers.1.self_attn.q_proj.weight") || has(name, "layers.1.self_attn.v_proj.weight")));
  check_refused(
      {"merge-adapter", base("llama"), kGolden + "adapters/llama", "--out", work + "/x", "--requantize"},
      "has no 4-bit weights to requantize");
}

TEST_CASE("a merge into 4-bit weights is stored in 16 bits") {
  const std::string work = new_folder("ckpt_quantize_16");
  run({"merge-adapter", quantized("mistral"), kGolden + "adapters/mistral", "--out", work + "/out"});
  const SafetensorsFile file(weights(work + "/out"));
  CHECK(file.find("model.layers.0.self_attn.q_proj.weight")->dtype == "BF16");
  CHECK(file.find("model.norm.weight")->dtype == "F32");
}

TEST_CASE("ckpt diff and verify treat codes as bytes, whatever dtype the file declares") {
  const std::string work = new_folder("ckpt_quantize_diff"), changed = work + "/changed";
  fs::copy(quantized("qwen2"), changed);
  TensorContents contents = read_contents(weights(changed));
  TensorContent& codes = contents["model.layers.0.self_attn.q_proj.weight"];
  for (std::byte& byte : codes.bytes) byte = std::byte{0xff};  // a NaN in bf16
  write_contents(weights(changed), contents);
  CHECK(ckpt({"verify", changed}).exit_code == 0);
  const Ran ran = ckpt({"diff", quantized("qwen2"), changed});
  CAPTURE(ran);
  CHECK(ran.exit_code == 1);
  CHECK(has(ran.out, "model: model.layers.0.self_attn.q_proj.weight: the bytes differ\n"));
  contents["model.layers.0.self_attn.q_proj.weight.absmax"].as<uint32_t>()[2] = 0x7fc00000;
  write_contents(weights(changed), contents);
  CHECK(has(ckpt({"verify", changed}).out, "q_proj.weight.absmax: element 2 is nan, must be finite"));
}

TEST_CASE("ckpt quantize refuses unsuitable input and leaves no folder behind") {
  const std::string work = new_folder("ckpt_quantize_refused"), out = work + "/out";
  const auto refused = [&](std::vector<std::string> words, const std::string& reason) {
    words.insert(words.begin(), "quantize");
    words.insert(words.end(), {"--out", out});
    check_refused(words, reason);
  };
  refused({quantized("llama")}, "has 4-bit weights already: dequantize them with ckpt export --dtype first");
  refused({base("llama"), "--block", "48"}, "--block is 48, must be a power of two from 32 to 4096");
  refused({base("llama"), "--skip", "w1"}, "--skip w1: no linear layer has this name");
  refused({base("llama"), "--skip", "model"}, "--skip leaves no linear layer to quantize");
  refused({base("llama"), "--type", "int4"}, "--type");
  refused({base("qwen3"), "--block", "64", "--storage", "int8"}, "--storage");
  refused({base("qwen3"), work + "/other"}, "quantize takes MODEL OUT, or MODEL --out OUT: both are given");
  check_refused({"quantize", base("qwen3")}, "quantize takes MODEL OUT, or MODEL --out OUT: OUT is missing");
  CHECK(names_in(work).empty());
}
