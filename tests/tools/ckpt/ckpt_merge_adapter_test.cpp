// ckpt merge-adapter, on the adapters that PEFT wrote (tests/golden/adapters.py).

#include <filesystem>

#include "checkpoint/float_values.h"
#include "hub/adapted_model.h"
#include "runtime/whole_file.h"
#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/model/small_run.h"
#include "tests/test.h"
#include "tests/tools/ckpt/ckpt_run.h"

using namespace flatshard;
using namespace flatshard::test;
namespace fs = std::filesystem;

namespace {

// f32 sums in another order than the other framework's.
constexpr double kF32 = 2e-5;

const std::string kGolden = str(kSourceDir, "/tests/golden/");

std::string adapter_of(const std::string& name) { return kGolden + "adapters/" + name; }
std::string base_of(const std::string& name) { return kGolden + "folders/" + base_of_adapter(name); }

// An empty folder for a test.
std::string new_folder(const std::string& name) {
  fs::remove_all(name);
  fs::create_directories(name);
  return name;
}

double logits_error(const std::string& folder, const std::string& name) {
  const auto expected = load_golden("adapters/" + name + "/expected");
  SmallRun run(read_model_config(folder), expected, DType::f32, false,
               [&](const Model& model, const ParamTensors& parameters, Stream& stream) {
                 read_model_weights(folder, model, parameters, stream);
               });
  return bench::max_error(run.logits(), expected.at("logits").values);
}

}  // namespace

TEST_CASE("merged adapters of every family are model folders with PEFT's logits") {
  const std::string work = new_folder("ckpt_merge_adapter");
  for (const std::string name :
       {"llama", "mistral", "qwen2", "qwen3", "gpt2", "llama_resized", "qwen2_resized", "olmoe_experts",
        "olmoe_down", "mixtral_modules", "gpt_oss_experts", "olmoe_single", "mixtral_single", "gpt_oss_up",
        "granitemoe_experts"}) {
    const std::string out = work + "/" + name;
    const Ran ran = ckpt({"merge-adapter", base_of(name), adapter_of(name), "--out", out, "--dtype", "f32"});
    CAPTURE(ran);
    REQUIRE(ran.exit_code == 0);
    CHECK(ran.out.starts_with("wrote " + out + ", "));
    CHECK(logits_error(out, name) < kF32);
    CHECK(ckpt({"verify", out}).exit_code == 0);
  }
  CHECK(read_hf_config(work + "/qwen2_resized/config.json").vocab == 61);
  CHECK(names_in(work + "/llama").contains("tokenizer.json"));
}

TEST_CASE("a merge keeps the dtype of the base, and rounds once") {
  const std::string work = new_folder("ckpt_merge_dtype");
  CHECK(ckpt({"merge-adapter", base_of("qwen2"), adapter_of("qwen2"), "--out", work + "/same"}).exit_code ==
        0);
  CHECK(ckpt({"merge-adapter", base_of("qwen2"), adapter_of("qwen2"), "--out", work + "/exact", "--dtype",
              "f32"})
            .exit_code == 0);
  const SafetensorsFile same(work + "/same/model.safetensors"), exact(work + "/exact/model.safetensors"),
      base(base_of("qwen2") + "/model.safetensors");
  int64_t changed = 0;
  for (const SafetensorsEntry& entry : same.entries()) {
    CHECK(entry.dtype == "BF16");
    std::vector<float> expected = all_floats(*exact.find(entry.name));
    for (float& value : expected) value = static_cast<float>(bf16(value));
    CHECK(all_floats(entry) == expected);
    changed += all_floats(entry) != all_floats(*base.find(entry.name));
  }
  CHECK(changed == 2);  // q and v of one block
}

TEST_CASE("a merge finds the base by the adapter's config, and takes the adapter's tokenizer") {
  const std::string work = new_folder("ckpt_merge_found"), adapter = work + "/run/adapter";
  fs::create_directories(work + "/run");
  fs::copy(adapter_of("llama"), adapter);
  fs::copy(base_of("llama"), work + "/base");
  check_refused(
      {"merge-adapter", work + "/run", "--out", work + "/out"},
      "base_model_name_or_path is \"tests/golden/folders/llama\", which is neither a folder nor a GGUF file");
  const std::string config = adapter + "/adapter_config.json", named = "tests/golden/folders/llama";
  std::string text = read_file(config);
  text.replace(text.find(named), named.size(), work + "/base");
  write_file(config, text);
  write_file(adapter + "/tokenizer_config.json", "{}");
  write_file(adapter + "/tokenizer.json", "{}");
  const Ran ran = ckpt({"merge-adapter", work + "/run", "--out", work + "/out", "--shard-size", "30KB"});
  CAPTURE(ran);
  CHECK(ran.exit_code == 0);
  CHECK(read_file(work + "/out/tokenizer.json") == "{}");
  CHECK(!names_in(work + "/out").contains("chat_template.jinja"));
  CHECK(read_file(work + "/out/generation_config.json") == read_file(work + "/base/generation_config.json"));
  CHECK(names_in(work + "/out").contains("model.safetensors.index.json"));
  CHECK(logits_error(work + "/out", "llama") < kF32);
}

TEST_CASE("a merge that fails leaves nothing behind") {
  const std::string work = new_folder("ckpt_merge_refused");
  check_refused({"merge-adapter", base_of("llama"), adapter_of("gpt2"), "--out", work + "/out"},
                "check that the adapter was made for this base");
  check_refused({"merge-adapter", base_of("llama"), base_of("llama"), "--out", work + "/out"},
                "not an adapter folder (no adapter_config.json)");
  check_refused({"merge-adapter", base_of("llama"), adapter_of("llama"), "--out", work},
                work + ": already exists");
  CHECK(names_in(work).empty());
}

TEST_CASE("a merge takes OUT last, as other commands do, or as --out") {
  const std::string work = new_folder("ckpt_merge_places"), base = base_of("llama"),
                    adapter = adapter_of("llama"),
                    usage =
                        "merge-adapter takes BASE ADAPTER OUT, or ADAPTER OUT if the adapter names its base";
  for (const std::vector<std::string>& words :
       {std::vector{base, adapter, work + "/last"}, {base, adapter, "--out", work + "/option"}}) {
    std::vector<std::string> all{"merge-adapter"};
    all.insert(all.end(), words.begin(), words.end());
    const Ran ran = ckpt(all);
    CAPTURE(ran);
    CHECK(ran.exit_code == 0);
    CHECK(has(ran.out, "wrote " + words.back() + ", "));
  }
  CHECK(read_file(work + "/last/model.safetensors") == read_file(work + "/option/model.safetensors"));
  check_refused({"merge-adapter", base, adapter},
                adapter + ": already exists, and is OUT, the folder to create: " + usage);
  check_refused({"merge-adapter", adapter}, usage + ": there is 1 folder");
  check_refused({"merge-adapter", base, adapter, work + "/a", work + "/b"}, usage + ": there are 4 folders");
  check_refused({"merge-adapter", base, adapter, work + "/a", "--out", work + "/b"},
                usage + ": there are 4 folders");
  check_refused({"merge-adapter"}, "FOLDERS is required");
  CHECK(names_in(work) == std::set<std::string>{"last", "option"});
}
