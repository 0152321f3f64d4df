// Tensors against those that llama.cpp's names and its order of rows make of golden/folders
// (tests/golden/gguf_files.py), and models read back from the files.

#include "hub/gguf/gguf_model.h"

#include <filesystem>
#include <fstream>

#include "hub/published_weights.h"
#include "model/model.h"
#include "runtime/json.h"
#include "runtime/sha256.h"
#include "source_dir.h"
#include "tests/golden.h"
#include "tests/small_model.h"
#include "tests/test.h"
#include "tests/tools/ckpt/ckpt_run.h"
#include "train/plan/plan_text.h"

using namespace flatshard;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// A copy of the golden folder, with what llama.cpp fixes: the scale of attention scores, which blocks rotate,
// and the weights of experts.
std::string folder_of(const std::string& name) {
  const std::string copy = "gguf_model_" + name;
  fs::remove_all(copy);
  fs::copy(str(kSourceDir, "/tests/golden/folders/", name), copy);
  std::ifstream in(copy + "/config.json");
  json config = json::parse(in);
  if (config.contains("query_pre_attn_scalar")) config["query_pre_attn_scalar"] = config["head_dim"];
  if (config.contains("no_rope_layers"))
    for (json& rotates : config["no_rope_layers"]) rotates = 1;
  if (config.value("model_type", "") == "qwen3_moe") config["norm_topk_prob"] = true;
  if (config.value("model_type", "") == "glm4_moe") config["n_group"] = config["topk_group"] = 1;
  if (config.value("model_type", "") == "gpt_oss") config["swiglu_limit"] = 7;
  std::ofstream(copy + "/config.json") << config;
  fs::remove(copy + "/tokenizer.json");  // of a kind that llama.cpp lacks
  return copy;
}

json golden() { return json::parse(std::ifstream(str(kSourceDir, "/tests/golden/gguf_tensors.json"))); }

std::string hash_of(const std::vector<float>& values) {
  Sha256 sha;
  sha.add(values.data(), values.size() * sizeof(float));
  return sha.hex().substr(0, 16);
}

std::vector<float> all_of(const GgufFile& file, const GgufTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  file.read(tensor, 0, tensor.values(), values.data());
  return values;
}

// A small random model of a family, as many key-value heads as heads.
std::string written(const std::string& family) {
  ModelConfig config = test::small_model(family);
  config.kv_heads = config.heads;
  StreamSet streams(Device::cpu());
  const ResidentModel model(resolved(config), DType::f32, streams.add("compute"));
  test::fill_random(model);
  test::write_model_folder("gguf_model_" + family, model);
  return "gguf_model_" + family;
}

std::string exported(const std::string& folder, const std::string& name, const std::string& type = "f32") {
  const std::string path = "gguf_model_" + name + ".gguf";
  const test::Ran ran = test::ckpt({"export", folder, path, "--type", type});
  CAPTURE(ran);
  REQUIRE(ran.exit_code == 0);
  return path;
}

}  // namespace

TEST_CASE("an exported model has the tensors that llama.cpp expects") {
  const json all = golden();
  for (const auto& [name, expected] : all.items()) {
    CAPTURE(name);
    const GgufFile file(exported(folder_of(name), name));
    CHECK(file.value<std::string>("general.architecture") == expected.at("architecture").get<std::string>());
    for (const auto& [tensor, wanted] : expected.at("tensors").items()) {
      CAPTURE(tensor);
      const GgufTensor* found = file.find(tensor);
      REQUIRE(found);
      CHECK(json(found->shape) == wanted[0]);
      CHECK(hash_of(all_of(file, *found)) == wanted[1].get<std::string>());
    }
    size_t others = file.find("rope_freqs.weight") ? 1 : 0;
    others += !expected["tensors"].contains("output.weight") && file.find("output.weight") ? 1 : 0;
    CHECK(file.tensors().size() == expected["tensors"].size() + others);
  }
}

TEST_CASE("an exported adapter adds to the tensors of a model what merging adds") {
  for (const std::string name : {"llama", "mistral", "gpt2", "mixtral_modules", "mixtral_single",
                                 "gpt_oss_experts", "gpt_oss_up", "granitemoe_experts"}) {
    CAPTURE(name);
    const std::string base = folder_of(test::base_of_adapter(name)), adapter = base + "_" + name,
                      merged = adapter + "_merged";
    for (const std::string& folder : {adapter, merged}) fs::remove_all(folder);
    fs::copy(str(kSourceDir, "/tests/golden/adapters/", name), adapter);
    fs::copy_file(base + "/config.json", adapter + "/config.json");
    REQUIRE(test::ckpt({"merge-adapter", base, adapter, merged, "--dtype", "f32"}).exit_code == 0);
    const GgufFile before(exported(base, name)), after(exported(merged, name + "_merged")),
        factors(exported(adapter, name + "_adapter"));
    const auto alpha = factors.value<double>("adapter.lora.alpha");
    size_t changed = 0;
    for (const GgufTensor& tensor : before.tensors()) {
      CAPTURE(tensor.name);
      std::vector<float> expected = all_of(before, tensor);
      if (const GgufTensor* const a = factors.find(tensor.name + ".lora_a")) {
        const GgufTensor& b = *factors.find(tensor.name + ".lora_b");
        const std::vector<float> of_a = all_of(factors, *a), of_b = all_of(factors, b);
        const bool experts = a->shape.size() == 3;
        const int64_t E = experts ? a->shape[0] : 1, rank = b.shape.back(), in = a->shape.back(),
                      out = b.shape[experts ? 1 : 0];
        REQUIRE(std::ssize(expected) == E * out * in);
        REQUIRE(std::ssize(of_a) == E * rank * in);
        for (int64_t row = 0; row < E * out; ++row)
          for (int64_t i = 0; i < in; ++i) {
            double sum = 0;
            for (int64_t j = 0; j < rank; ++j)
              sum += of_b[static_cast<size_t>(row * rank + j)] *
                     of_a[static_cast<size_t>((row / out * rank + j) * in + i)];
            expected[static_cast<size_t>(row * in + i)] +=
                static_cast<float>(sum * alpha / static_cast<double>(rank));
          }
        ++changed;
      }
      const std::vector<float> found = all_of(after, *after.find(tensor.name));
      CHECK(bench::max_error({found.begin(), found.end()}, {expected.begin(), expected.end()}) < 2e-5);
    }
    CHECK(2 * changed == factors.tensors().size());
  }
}

TEST_CASE("a model is read from a GGUF file with its config and its values") {
  std::vector<std::string> names{"phi3_long", "phi3_short"};
  for (const auto& [name, expected] : golden().items()) names.push_back(name);
  names.insert(names.end(), {"qwen2_moe", "olmoe"});
  for (const std::string& name : names) {
    CAPTURE(name);
    const bool ours = name == "qwen2_moe" || name == "olmoe";
    const std::string folder = ours ? written(name) : folder_of(name), path = exported(folder, name);
    ModelConfig was = read_published_config(folder), is = read_published_config(path);
    if (was.family == "mistral") was.family = "llama";  // llama.cpp makes no difference
    if (was.family != "gemma2" && was.family != "gemma3" && was.family != "gpt_oss")
      was.window = 0;  // it has no window there
    was.max_positions = is.max_positions;
    if (was.family == "olmo2") is.tied = was.tied;  // it has a head of its own there
    CHECK(describe_model(is) == describe_model(was));
    CHECK(*is.rope_theta == *was.rope_theta);
    CHECK(*is.norm_eps == *was.norm_eps);
    CHECK(is.query_scalar == was.query_scalar);
    CHECK(is.rope_scaling == was.rope_scaling);
    for (int64_t block = 0; block < is.layers; ++block) {
      CHECK(is.window_of(block) == was.window_of(block));
      CHECK(is.rotates(block) == was.rotates(block));
    }
    Arena tables("tables", Device::cpu());
    const Model model(was, tables);
    PublishedWeights from_folder(folder, model, was.vocab), from_file(path, model, was.vocab);
    for (const SafetensorsSpec& spec : weight_specs(model, DType::f32)) {
      CAPTURE(spec.name);
      int64_t n = 1;
      for (const int64_t extent : spec.shape) n *= extent;
      std::vector<float> a(static_cast<size_t>(n)), b = a;
      from_folder.read(spec.name, 0, n, a.data());
      from_file.read(spec.name, 0, n, b.data());
      const float added = spec.name.ends_with("norm.weight") ? was.norm_offset : 0;
      for (float& value : a) value = (value + added) - added;  // what the file's sum has rounded
      CHECK(a == b);
      from_file.read(spec.name, n / 3, n - n / 3, b.data());
      CHECK(std::equal(a.begin() + n / 3, a.end(), b.begin()));
    }
  }
}

TEST_CASE("llama.cpp's order of rows has an inverse") {
  const GgufParameter p{.parameter = "q", .name = "attn_q", .shape = {24, 4}, .interleaved = 6};
  for (int64_t row = 0; row < 24; ++row) {
    CHECK(p.row_in_file(p.row_in_model(row)) == row);
    CHECK(p.row_in_model(row) / 6 == row / 6);
  }
  CHECK(p.row_in_model(1) == 3);
  CHECK(p.row_in_model(2) == 1);
}

TEST_CASE("what llama.cpp cannot express is refused or said") {
  ModelConfig c = test::small_model("qwen3");
  c.rope_scaling = {.kind = RopeScaling::Kind::llama3, .factor = 8};
  CHECK(test::missing_from(test::error_of([&] { gguf_architecture(resolved(c)); }),
                           {"rope_scaling", "llama3", "none, linear or yarn"}) == "");
  ModelConfig longer = test::small_model("llama");
  longer.rope_scaling = {.kind = RopeScaling::Kind::longrope, .factor = 8};
  longer.rope_scaling.short_factor.resize(
      static_cast<size_t>(resolved(test::small_model("llama")).head_dim / 2), 1);
  longer.rope_scaling.long_factor = longer.rope_scaling.short_factor;
  CHECK(test::missing_from(test::error_of([&] { gguf_architecture(resolved(longer)); }),
                           {"rope_scaling", "longrope", "none, linear or yarn"}) == "");
  ModelConfig scalar = test::small_model("gemma2");
  scalar.query_scalar = 99;
  CHECK(test::missing_from(test::error_of([&] { gguf_architecture(resolved(scalar)); }),
                           {"query_scalar is 99", "cannot be written as GGUF"}) == "");
  ModelConfig dense = test::small_model("qwen3_moe");
  dense.norm_topk = true;
  CHECK(test::missing_from(test::error_of([&] { gguf_architecture(resolved(dense)); }),
                           {"dense_blocks is [0]", "experts in every block"}) == "");
  dense.dense_blocks.clear();
  CHECK(gguf_architecture(resolved(dense)) == "qwen3moe");
  dense.norm_topk = false;
  CHECK(test::missing_from(test::error_of([&] { gguf_architecture(resolved(dense)); }),
                           {"norm_topk is false", "weights that add up to 1"}) == "");
  CHECK(test::missing_from(test::error_of([&] { gguf_architecture(resolved(test::small_model("olmoe"))); }),
                           {"kv_heads is 2", "as many as heads, 4"}) == "");
  ModelConfig window = test::small_model("mistral");
  window.window = 5;
  window.max_positions = 64;
  GgufWriter out;
  const std::vector<std::string> notes = put_gguf_config(out, resolved(window));
  REQUIRE(notes.size() == 1);
  CHECK(test::missing_from(notes[0], {"no sliding window", "5 tokens", "64"}) == "");
  const ModelConfig seeing = resolved(test::small_model("idefics3"));
  CHECK(test::missing_from(test::error_of([&] { gguf_architecture(seeing); }),
                           {"idefics3", "reads images", "as a folder", "--mmproj"}) == "");
}

TEST_CASE("a model with tensors that are missing or foreign is refused by name") {
  const GgufFile whole(exported(folder_of("llama"), "llama"));
  GgufWriter out;
  out.put("general.architecture", "llama");
  for (const auto& [key, value] : whole.metadata())
    if (const int64_t* n = std::get_if<int64_t>(&value); n && key.starts_with("llama."))
      out.put_size(key, *n);
  std::vector<GgufTensor> kept;
  for (const GgufTensor& tensor : whole.tensors())
    if (tensor.name != "blk.0.ffn_up.weight") kept.push_back(tensor);
  kept.back().name = "blk.9.extra.weight";
  for (const GgufTensor& tensor : kept) out.add_tensor(tensor.name, GgmlType::f32, tensor.shape);
  out.begin("gguf_model_missing.gguf");
  for (const GgufTensor& tensor : kept) {
    const std::vector<float> zeros(static_cast<size_t>(tensor.values()));
    out.write(std::as_bytes(std::span(zeros)));
  }
  out.finish();
  CHECK(test::missing_from(test::error_of([] { read_published_config("gguf_model_missing.gguf"); }),
                           {"blk.0.ffn_up.weight is missing", "blk.9.extra.weight is unexpected"}) == "");
}
