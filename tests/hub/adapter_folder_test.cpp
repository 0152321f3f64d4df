// Adapter folders that PEFT wrote (tests/golden/adapters.py), and damaged ones.

#include "hub/adapter_folder.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "checkpoint/float_values.h"
#include "hub/adapted_model.h"
#include "hub/peft_names.h"
#include "runtime/whole_file.h"
#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/model/small_run.h"
#include "tests/test.h"
#include "tools/inference/find_model.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

// f32 sums in another order than the other framework's.
constexpr double kF32 = 2e-5;
// For gradients in mixtures, because PEFT's own differ from those in f64 by 6.2e-5.
constexpr double kBehindExperts = 1e-4;

const std::string kGolden = str(kSourceDir, "/tests/golden/");
// "single": adapters of the layers of single experts.
const std::vector<std::string> kNames{
    "llama",          "mistral",         "qwen2",         "qwen3",
    "gpt2",           "llama_head",      "llama_resized", "qwen2_resized",
    "olmoe_experts",  "olmoe_down",      "olmoe_single",  "mixtral_modules",
    "mixtral_single", "gpt_oss_experts", "gpt_oss_up",    "granitemoe_experts"};

ModelSource source_of(const std::string& name) {
  return {kGolden + "folders/" + test::base_of_adapter(name), kGolden + "adapters/" + name};
}

test::SmallRun::Golden expected_of(const std::string& name) {
  return test::load_golden("adapters/" + name + "/expected");
}

AdapterFolder open(const std::string& folder, const std::string& base) {
  Arena tables("tables", Device::cpu());
  return {folder, Model(read_hf_config(base + "/config.json"), tables)};
}
AdapterFolder open(const std::string& name) {
  const ModelSource source = source_of(name);
  return open(source.adapter, source.folder);
}

std::vector<float> read_all(const AdapterFolder& adapter, const std::string& parameter, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  adapter.read(parameter, 0, elements, values.data());
  return values;
}

// The largest error of the gradients that PEFT trains.
double gradient_error(const ModelConfig& config, const ParamTensors& gradients,
                      const test::SmallRun::Golden& expected) {
  Arena tables("tables", Device::cpu());
  const Model model(config, tables);
  double worst = 0;
  size_t found = 0;
  for (size_t u = 0; u < gradients.size(); ++u)
    for (size_t i = 0; i < gradients[u].size(); ++i) {
      const auto golden = expected.find(
          "grad." + adapter_tensor_name(peft_name(config.family, model.param_lists()[u].specs()[i].name)));
      if (golden == expected.end()) continue;
      worst = std::max(worst, bench::max_error(bench::to_doubles(gradients[u][i]), golden->second.values));
      ++found;
    }
  CHECK(found == expected.size() - 4);  // tokens, targets, logits, loss
  return worst;
}

// A copy of an adapter folder of PEFT's, with the base of the same name, whose tensors a test changes.
class Changed {
 public:
  explicit Changed(const std::string& name) : base_(source_of(name).folder) {
    fs::remove_all(kFolder);
    fs::create_directories(kFolder);
    for (const char* file : {kAdapterConfigName, "adapter_model.safetensors"})
      fs::copy_file(source_of(name).adapter + "/" + file, kFolder + "/" + file);
    const SafetensorsFile file(kFolder + "/adapter_model.safetensors");
    for (const SafetensorsEntry& entry : file.entries())
      specs_.push_back({entry.name, DType::f32, entry.shape});
  }

  SafetensorsSpec& operator[](const std::string& parameter) {
    return *std::find_if(specs_.begin(), specs_.end(),
                         [&](const auto& spec) { return spec.name == adapter_tensor_name(parameter); });
  }
  std::vector<SafetensorsSpec>& specs() { return specs_; }
  std::string config() const { return read_whole_file(kFolder + "/" + kAdapterConfigName, 1 << 20); }
  void write_config(const std::string& text) { write_whole_file(kFolder + "/" + kAdapterConfigName, text); }

  // The error of opening the folder, its tensors now being those of specs(), without what begins it.
  std::string error() {
    const std::string path = kFolder + "/adapter_model.safetensors";
    const SafetensorsLayout layout(specs_);
    SafetensorsWriter(path, layout, true).finish();
    const std::string error = test::error_of([&] { open(kFolder, base_); });
    return error.starts_with(path + ": ") ? error.substr(path.size() + 2) : error;
  }

 private:
  inline static const std::string kFolder = "adapter_folder_test";
  std::string base_;
  std::vector<SafetensorsSpec> specs_;
};

}  // namespace

TEST_CASE("adapters made by PEFT give its logits, loss and gradients") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    const auto expected = expected_of(name);
    const ModelSource source = source_of(name);
    const ModelConfig config = read_model_config(source);
    test::SmallRun run(config, expected, DType::f32, false,
                       [&](const Model& model, const ParamTensors& parameters, Stream& stream) {
                         read_model_weights(source, model, parameters, stream);
                       });
    CHECK(run.loss() == doctest::Approx(expected.at("loss").values[0]).epsilon(kF32));
    CHECK(bench::max_error(run.logits(), expected.at("logits").values) < kF32);
    CHECK(gradient_error(config, run.gradients(), expected) < (config.experts > 0 ? kBehindExperts : kF32));
  }
}

TEST_CASE("adapters made by PEFT, merged into the base, give the logits of the unmerged model") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    const auto expected = expected_of(name);
    const ModelSource source = source_of(name);
    ModelConfig config = read_model_config(source);
    config.adapters.clear();
    test::SmallRun run(config, expected, DType::f32, false,
                       [&](const Model& model, const ParamTensors& parameters, Stream&) {
                         AdaptedWeights values(source, model);
                         AdapterFolder adapter = open(name);
                         for (size_t u = 0; u < parameters.size(); ++u)
                           for (size_t i = 0; i < parameters[u].size(); ++i) {
                             const std::string& weight = model.param_lists()[u].specs()[i].name;
                             const Tensor& to = parameters[u][i];
                             values.read(weight, 0, to.size(), to.as<float>());
                             adapter.merge(weight, 0, to.size(), to.as<float>());
                           }
                       });
    CHECK(bench::max_error(run.logits(), expected.at("logits").values) < kF32);
  }
}

TEST_CASE("a merge gives the same bits for any division of a weight into ranges") {
  for (const std::string& weight :
       {std::string("model.layers.1.mlp.up_proj.weight"), std::string("transformer.h.1.mlp.c_fc.weight")}) {
    AdapterFolder adapter = open(weight.starts_with("model") ? "llama" : "gpt2");
    const int64_t elements = weight.starts_with("model") ? 48 * 32 : 32 * 128;
    std::vector<float> whole(static_cast<size_t>(elements), 0.25f), pieces = whole;
    adapter.merge(weight, 0, elements, whole.data());
    for (int64_t first = 0; first < elements; first += 77)
      adapter.merge(weight, first, std::min<int64_t>(77, elements - first),
                    &pieces[static_cast<size_t>(first)]);
    CHECK(whole == pieces);
    CHECK(whole != std::vector<float>(whole.size(), 0.25f));
  }
}

TEST_CASE("an adapter folder has the ranks, scales and replaced parameters that its config and tensors say") {
  const AdapterFolder llama = open("llama");
  CHECK(llama.adapters().size() == 14);
  CHECK(llama.adapters().at("model.layers.0.self_attn.q_proj").rank == 3);
  CHECK(llama.adapters().at("model.layers.0.self_attn.q_proj").scale == 4.0f / 3);
  CHECK(llama.adapters().at("model.layers.0.self_attn.v_proj").scale == 1.5f);
  CHECK(llama.adapters().at("model.layers.1.mlp.down_proj").rank == 1);
  CHECK(llama.adapters().at("model.layers.0.self_attn.q_proj").dropout == 0.1f);
  CHECK(llama.replaced().empty());
  CHECK(llama.warnings().empty());
  CHECK(llama.vocab() == 64);
  const std::vector<std::string> both{"model.embed_tokens.weight", "lm_head.weight"};
  CHECK(open("qwen3").replaced() == both);
  CHECK(open("llama_resized").replaced() == both);
  CHECK(open("llama_resized").vocab() == 70);
  CHECK(open("qwen2_resized").replaced() == std::vector<std::string>{"model.embed_tokens.weight"});
  CHECK(open("qwen2_resized").vocab() == 61);
  CHECK(open("mistral").adapters().at("model.layers.0.mlp.up_proj").scale ==
        static_cast<float>(2 / std::sqrt(2)));
  CHECK(read_all(open("gpt2"), "transformer.h.0.attn.c_attn.lora_B.weight", 96 * 2).size() == 192);
}

TEST_CASE("an adapter that does not fit its base or its config is refused by tensor") {
  const std::string up = "model.layers.0.mlp.up_proj", a = adapter_tensor_name(up + ".lora_A.weight");
  const auto error_of = [&](const std::string& base, const std::function<void(Changed&)>& change) {
    Changed changed(base);
    change(changed);
    return changed.error();
  };
  CHECK(error_of("llama", [](Changed&) {}).empty());
  CHECK(error_of("llama", [&](Changed& c) {
          c[up + ".lora_A.weight"].shape = {2, 33};
        }) == a + " is [2, 33], must be [rank, 32] for this base, with a rank from 1 to 8192");
  CHECK(error_of("llama", [&](Changed& c) {
          c[up + ".lora_B.weight"].shape = {48, 3};
        }) == adapter_tensor_name(up + ".lora_B.weight") + " has rank 3, but the layer's a has rank 2");
  CHECK(error_of("llama", [&](Changed& c) {
          c[up + ".lora_A.weight"].shape = {5, 32};
          c[up + ".lora_B.weight"].shape = {48, 5};
        }) == "the adapter of " + up + " has rank 5, but its rank in adapter_config.json is 2");
  CHECK(
      error_of("llama", [&](Changed& c) { c[up + ".lora_B.weight"].name += "x"; }) ==
      adapter_tensor_name(up + ".lora_B.weightx") +
          " is not a parameter of the base, nor lora_A or lora_B of a layer: check that the adapter was made "
          "for this base");
  CHECK(error_of("llama", [&](Changed& c) { c[up + ".lora_A.weight"].name = up; }) ==
        "the name " + up + " does not begin with base_model.model., as those of PEFT's LoRA adapters do");
  CHECK(error_of("llama", [&](Changed& c) { c[up + ".lora_A.weight"].dtype = DType::i32; }) ==
        a + " is I32, must be F32, BF16 or F16");
  CHECK(error_of("llama", [&](Changed& c) { c.specs().resize(1); }).ends_with(" is missing"));
  CHECK(error_of("llama", [&](Changed& c) { c.specs().clear(); }) ==
        "has no lora_A or lora_B, so it is not a LoRA adapter");
  CHECK(error_of("gpt2", [&](Changed& c) {
          c["transformer.h.0.mlp.c_fc.lora_A.weight"].name =
              "base_model.model.transformer.wte.lora_embedding_A";
        }) == "base_model.model.transformer.wte.lora_embedding_A: adapters of embeddings are not supported");
  CHECK(error_of("llama_resized",
                 [&](Changed& c) {
                   c["lm_head.weight"].shape = {71, 32};
                 }) ==
        "model.embed_tokens.weight has 70 rows in this file, but the adapter resizes the vocabulary to 71");
  CHECK(error_of("qwen2",
                 [&](Changed& c) {
                   c.specs().push_back({adapter_tensor_name("lm_head.weight"), DType::f32, {64, 32}});
                 }) ==
        "base_model.model.lm_head.weight differs from the embedding, but the base ties the two: this is "
        "not supported");
}

TEST_CASE("a pattern of an adapter's config that matches none of its layers is a warning") {
  Changed changed("qwen2");
  std::string text = changed.config();
  text.replace(text.find("\"alpha_pattern\": {}"), 19, "\"alpha_pattern\": {\"w1\": 4}");
  changed.write_config(text);
  CHECK(open("adapter_folder_test", source_of("qwen2").folder).warnings() ==
        std::vector<std::string>{
            "adapter_folder_test/adapter_config.json: lora.alpha_pattern: \"w1\" matches no adapter"});
}

TEST_CASE("a model is found with its adapter, from the folders given or from the adapter's config") {
  const std::string folder = "adapter_found", base = fs::absolute(kGolden + "folders/qwen2").string();
  fs::remove_all(folder);
  fs::create_directories(folder + "/run/adapter");
  fs::copy(kGolden + "adapters/qwen2", folder + "/run/adapter");
  const ModelSource both = find_model(base, folder + "/run");
  CHECK(both.folder == base);
  CHECK(both.adapter == folder + "/run/adapter");
  const std::string config = folder + "/run/adapter/adapter_config.json";
  std::string text = read_whole_file(config, 1 << 20);
  const std::string golden = "tests/golden/folders/qwen2";
  text.replace(text.find(golden), golden.size(), folder + "/missing");
  write_whole_file(config, text);
  CHECK(test::error_of([&] { find_model(folder + "/run", ""); }) ==
        config + ": base_model_name_or_path is \"" + folder +
            "/missing\", which is neither a folder nor a GGUF file: give the folder or GGUF file of the base "
            "and, with "
            "--adapter, " +
            folder + "/run/adapter");
  fs::create_directory_symlink(base, folder + "/missing");
  for (const ModelSource& found :
       {find_model(folder + "/run", ""), find_model("", folder + "/run/adapter")}) {
    CHECK(found.folder == folder + "/missing");
    CHECK(found.adapter == folder + "/run/adapter");
  }
  CHECK(find_model(base, "").adapter.empty());
  CHECK(test::error_of([&] { find_model(base, base); }) ==
        base + ": not an adapter folder (no adapter_config.json)");
}
