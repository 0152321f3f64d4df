#include "train/config/accelerate_config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "runtime/whole_file.h"
#include "tests/test.h"
#include "train/config/yaml_mapping.h"

using namespace flatshard;

namespace {

// The three files of the guides that the project was created from (shared settings, then each one's own).
const std::string kCommon =
    "compute_environment: LOCAL_MACHINE\n"
    "distributed_type: FSDP\n"
    "downcast_bf16: 'no'\n"
    "machine_rank: 0\n"
    "main_training_function: main\n"
    "num_machines: 1\n"
    "rdzv_backend: static\n"
    "same_network: true\n"
    "tpu_env: []\n"
    "tpu_use_cluster: false\n"
    "tpu_use_sudo: false\n"
    "use_cpu: false\n";
const std::string kFullFineTuning = kCommon +
                                    "debug: false\n"
                                    "enable_cpu_affinity: false\n"
                                    "fsdp_config:\n"
                                    "  fsdp_activation_checkpointing: true\n"
                                    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                                    "  fsdp_backward_prefetch: BACKWARD_PRE\n"
                                    "  fsdp_cpu_ram_efficient_loading: true\n"
                                    "  fsdp_forward_prefetch: true\n"
                                    "  fsdp_offload_params: false\n"
                                    "  fsdp_sharding_strategy: FULL_SHARD\n"
                                    "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
                                    "  fsdp_sync_module_states: true\n"
                                    "  fsdp_transformer_layer_cls_to_wrap: "
                                    "Idefics2MLP,MistralFlashAttention2,MistralFlashAttention2,MistralMLP\n"
                                    "  fsdp_use_orig_params: false\n"
                                    "mixed_precision: bf16\n"
                                    "num_processes: 2\n";
std::string adapters(const std::string& offload, const std::string& precision, const std::string& processes,
                     const std::string& spaces) {
  return kCommon + "debug: false" + spaces +
         "\n"
         "fsdp_config:\n"
         "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
         "  fsdp_backward_prefetch: BACKWARD_PRE\n"
         "  fsdp_cpu_ram_efficient_loading: true\n"
         "  fsdp_forward_prefetch: false\n"
         "  fsdp_offload_params: " +
         offload +
         "\n"
         "  fsdp_sharding_strategy: FULL_SHARD\n"
         "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
         "  fsdp_sync_module_states: true\n"
         "  fsdp_use_orig_params: false\n"
         "mixed_precision: " +
         precision + "\nnum_processes: " + processes + "\n";
}

// A file that is removed after the test.
struct TempFile {
  explicit TempFile(const std::string& text) { write_whole_file(path, text); }
  ~TempFile() { std::filesystem::remove(path); }
  const std::string path = "accelerate_test_a.yaml";
};

AccelerateSettings settings_of(const std::string& text) {
  const TempFile file(text);
  return read_accelerate_config(file.path);
}

std::map<std::string, std::string> values_of(const AccelerateSettings& settings) {
  std::map<std::string, std::string> values;
  for (const ConfigPreset& preset : settings.presets) values[preset.key] = preset.toml;
  return values;
}

std::map<std::string, std::string> values_of(const std::string& text) { return values_of(settings_of(text)); }

// What follows the folder's name in the error.
std::string error_of(const std::string& text) {
  const std::string error = test::error_of([&] { settings_of(text); });
  return error.substr(std::min(error.find("a.yaml"), error.size()));
}

// A build without libyaml refuses every file; then the test is skipped.
bool lacks_yaml() {
  const std::string missing = test::error_of([] { parse_yaml_mapping("", "a.yaml"); });
  if (!missing.empty()) test::skip(missing);
  return !missing.empty();
}

}  // namespace

TEST_CASE("the accelerate files of the guides set the keys that they stand for") {
  if (lacks_yaml()) return;
  std::map<std::string, std::string> expected{{"parallel.strategy", "\"full_shard\""},
                                              {"parallel.wrap", "\"attention_mlp\""},
                                              {"parallel.backward_prefetch", "\"pre\""},
                                              {"parallel.forward_prefetch", "true"},
                                              {"parallel.offload", "false"},
                                              {"parallel.cpu_ram_efficient_loading", "true"},
                                              {"parallel.sync_module_states", "true"},
                                              {"train.recompute", "true"},
                                              {"precision.compute", "\"bf16\""}};
  const AccelerateSettings full = settings_of(kFullFineTuning);
  CHECK(values_of(full) == expected);
  CHECK(full.processes == 2);
  REQUIRE(full.notices.size() == 2);  // the classes of another model, and the form of checkpoints
  CHECK((full.notices[0] + full.notices[1]).find("Idefics2MLP") != std::string::npos);

  expected["parallel.wrap"] = "\"block\"";
  expected["parallel.forward_prefetch"] = "false";
  expected["train.recompute"] = "false";
  CHECK(values_of(adapters("false", "bf16", "8", "")) == expected);
  expected["parallel.offload"] = "true";
  expected["precision.compute"] = "\"fp32\"";
  const std::string trailing(200, ' ');
  CHECK(values_of(adapters("true", "'no'", "2", trailing)) == expected);
  CHECK(values_of(adapters("true", "no", "2", trailing)) == expected);  // YAML reads this as false
}

TEST_CASE("a preset names the line it came from, or accelerate's default") {
  if (lacks_yaml()) return;
  for (const ConfigPreset& preset : settings_of("distributed_type: FSDP\nfsdp_config:\n  "
                                                "fsdp_offload_params: true\n")
                                        .presets) {
    CAPTURE(preset.key);
    const bool given = preset.key == "parallel.offload";
    CHECK(preset.origin.ends_with(given ? "a.yaml:3" : "a.yaml (accelerate's default)"));
  }
}

TEST_CASE("keys that an accelerate file omits have accelerate's defaults") {
  if (lacks_yaml()) return;
  const auto values = values_of("distributed_type: FSDP\n");
  CHECK(values.at("parallel.strategy") == "\"full_shard\"");
  CHECK(values.at("parallel.wrap") == "\"none\"");
  CHECK(values.at("parallel.backward_prefetch") == "\"none\"");
  CHECK(values.at("parallel.forward_prefetch") == "false");
  CHECK(values.at("precision.compute") == "\"fp32\"");
}

TEST_CASE("strategies, wrapping and loading of an accelerate file have the same meaning here") {
  if (lacks_yaml()) return;
  const auto with = [](const std::string& lines) {
    return values_of("distributed_type: FSDP\nnum_processes: 8\nnum_machines: 2\nfsdp_config:\n" + lines);
  };
  CHECK(with("  fsdp_sharding_strategy: 2\n").at("parallel.strategy") == "\"shard_grad_op\"");
  CHECK(with("  fsdp_sharding_strategy: no_shard\n").at("parallel.strategy") == "\"no_shard\"");
  CHECK(with("  fsdp_sharding_strategy: HYBRID_SHARD\n").at("parallel.group_size") == "4");
  CHECK(with("  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n").at("parallel.strategy") ==
        "\"shard_grad_op\"");
  CHECK(with("  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 1000\n")
            .at("parallel.wrap_size") == "1000");
  CHECK(with("  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n").at("parallel.wrap") == "\"none\"");
  CHECK(with("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
             "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n")
            .at("parallel.wrap") == "\"block\"");
  CHECK(with("  fsdp_cpu_ram_efficient_loading: true\n").at("parallel.sync_module_states") == "true");
  CHECK(values_of("distributed_type: MULTI_GPU\nnum_processes: 2\n").at("parallel.strategy") ==
        "\"no_shard\"");
  CHECK(values_of("use_cpu: true\n").at("run.device") == "\"cpu\"");
}

TEST_CASE("a key of one version of FSDP is ignored in files of the other, with a notice if it is replaced") {
  if (lacks_yaml()) return;
  const auto with = [](const char* version) {
    return settings_of(str("distributed_type: FSDP\nnum_processes: 4\nnum_machines: 2\nfsdp_config:\n",
                           "  fsdp_reshard_after_forward: HYBRID_SHARD\n  fsdp_version: ", version,
                           "\n  fsdp_sharding_strategy: NO_SHARD\n  fsdp_backward_prefetch: BACKWARD_PRE\n"));
  };
  const AccelerateSettings first = with("1"), second = with("2");
  CHECK(values_of(first).at("parallel.strategy") == "\"no_shard\"");
  CHECK(values_of(first).at("parallel.backward_prefetch") == "\"pre\"");
  CHECK(first.notices.empty());
  CHECK(values_of(second).at("parallel.strategy") == "\"hybrid\"");
  CHECK(values_of(second).at("parallel.group_size") == "2");
  CHECK_FALSE(values_of(second).contains("parallel.backward_prefetch"));
  REQUIRE(second.notices.size() == 2);
  CHECK(
      second.notices[0].ends_with("fsdp_backward_prefetch is ignored: it has no meaning in FSDP version 2"));
  CHECK(second.notices[1].ends_with("fsdp_sharding_strategy is ignored: fsdp_reshard_after_forward decides"));
}

TEST_CASE("an accelerate file that cannot be followed is refused with file and line") {
  if (lacks_yaml()) return;
  const std::string fsdp = "distributed_type: FSDP\nfsdp_config:\n";
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"use_cpu true\n", "a.yaml:1: is a single value, must have the form key: value"},
           {"- use_cpu: true\n", "a.yaml:1: is a list, must have the form key: value"},
           {"use_cpu: true\nuse_cpu: false\n", "a.yaml:2: use_cpu is already set in line 1"},
           {"\tuse_cpu: true\n", "a.yaml:1: is not valid YAML: found character that cannot start any token"},
           {"tpu_env: [a, b\n", "a.yaml:2: is not valid YAML: "},
           {"main_process_ip: 'x\n", "a.yaml:2: is not valid YAML: found unexpected end of stream"},
           {"main_process_ip: &x y\n", "a.yaml:1: anchors (&) and aliases (*) are not supported"},
           {"main_process_ip: *x\n", "a.yaml:1: anchors (&) and aliases (*) are not supported"},
           {"debug: !!bool yes\n", "a.yaml:1: tags (!) are not supported"},
           {"? [a, b]\n: c\n", "a.yaml:1: a key must be a single word"},
           {"tpu_env: [[a]]\n", "a.yaml:1: an element of the list tpu_env must be a single value"},
           {"debug: false\n   use_cpu: false\n", "a.yaml:2: is not valid YAML: "},
           {"use_cpu: true\n---\ndebug: true\n", "a.yaml:2: begins a second document"},
           {"use_cpu: true\n...\n---\ndebug: true\n", "a.yaml:3: begins a second document"},
           {"a_config: {a: {b: {c: {d: {e: {f: {g: {h: 1}}}}}}}}\n",
            "a.yaml:1: is nested more than 8 levels"},
           {"debug: [true]\n", "a.yaml:1: debug is a list, must be a single value"},
           {"distributed_type: FSDP\nfsdp_config:\n- fsdp_offload_params: true\n",
            "a.yaml:3: an element of the list fsdp_config must be a single value"},
           {"distributed_type: FSDP\nfsdp_config: [a]\n",
            "a.yaml:2: fsdp_config is a list, must have members"},
           {"distributed_type: FSDP\nfsdp_config: true\n",
            "a.yaml:2: fsdp_config is a single value, must have members"},
           {fsdp + "  fsdp_offload_params: [true]\n",
            "a.yaml:3: fsdp_offload_params is a list, must be a single value"},
           {fsdp + "  fsdp_offload_params: true\n  fsdp_offload_params: false\n",
            "a.yaml:4: fsdp_offload_params is already set in line 3"},
           {"deepspeed_config:\n  zero_stage: 3\n", "a.yaml:1: unknown key deepspeed_config"},
           {"parallelism_config:\n  tp_size: 2\n",
            "a.yaml:1: parallelism_config = {...}: has no counterpart: "},
           {fsdp + "  fsdp_transformer_layer_cls_to_wrap: A\n  fsdp_transformer_cls_to_wrap: B\n",
            "a.yaml:4: fsdp_transformer_cls_to_wrap is set twice"},
           {"colour: red\n", "a.yaml:1: unknown key colour"},
           {"debug:\n  deep: 1\n", "a.yaml:1: debug has members"},
           {fsdp + "  fsdp_shard: 1\n", "a.yaml:3: unknown key fsdp_shard"},
           {fsdp + "  offload: 1\n", "a.yaml:3: unknown key offload in fsdp_config"},
           {"fsdp_offload_params: true\n", "a.yaml:1: fsdp_offload_params must be a member of fsdp_config"},
           {fsdp + "  fsdp_offload_params: maybe\n",
            "a.yaml:3: fsdp_offload_params = maybe: must be true or false"},
           {fsdp + "  fsdp_sharding_strategy: HALF\n",
            "a.yaml:3: fsdp_sharding_strategy = HALF: is parallel.strategy here: \"full_shard\", "
            "\"shard_grad_op\", \"no_shard\", \"hybrid\" for hybrid_shard"},
           {fsdp + "  fsdp_sharding_strategy: 5\n",
            "a.yaml:3: fsdp_sharding_strategy = 5: is parallel.strategy here: "},
           {fsdp + "  fsdp_version: 3\n", "a.yaml:3: fsdp_version = 3: has no counterpart: "},
           {fsdp + "  fsdp_version: 2\n  fsdp_forward_prefetch: true\n",
            "a.yaml:4: fsdp_forward_prefetch = true: does not exist in FSDP version 2"},
           {fsdp + "  fsdp_ignored_modules: head\n",
            "a.yaml:3: fsdp_ignored_modules = head: is parallel.replicate here: "},
           {fsdp + "  fsdp_min_num_params: 1e6\n",
            "a.yaml:3: fsdp_min_num_params = 1e6: must be a whole number"},
           {fsdp + "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                   "  fsdp_transformer_layer_cls_to_wrap: OPTDecoderLayer\n",
            "a.yaml:4: OPTDecoderLayer: must name a decoder layer such as LlamaDecoderLayer"},
           {"mixed_precision: fp8\n", "a.yaml:1: mixed_precision = fp8: is precision.compute here: "},
           {"distributed_type: DEEPSPEED\n",
            "a.yaml:1: distributed_type = DEEPSPEED: is parallel.strategy here: "},
           {"tpu_use_sudo: true\n", "a.yaml:1: tpu_use_sudo = true: has no counterpart: there are no TPUs"},
           {"compute_environment: AMAZON_SAGEMAKER\n",
            "a.yaml:1: compute_environment = AMAZON_SAGEMAKER: has no counterpart: the launcher starts"},
           {"num_processes: 0\n", "a.yaml:1: num_processes = 0: must be from 1 to 2147483647"},
           {"num_processes: 4294967297\n",
            "a.yaml:1: num_processes = 4294967297: must be from 1 to 2147483647"},
           {"num_processes: 2\n", "a.yaml:1: num_processes = 2: distributed_type NO is one process"}}) {
    CAPTURE(text);
    CHECK_MESSAGE(error_of(text).starts_with(error), error_of(text));
  }
}

TEST_CASE("a trainer's config is answered with the option that converts it") {
  if (lacks_yaml()) return;
  for (const char* line :
       {"base_model: m", "datasets:\n  - path: a.jsonl\n    type: chat_template", "learning_rate: 1"})
    CHECK_MESSAGE(test::missing_from(error_of(str("num_processes: 1\n", line, "\n")),
                                     {"a.yaml:2: ", "train --from ", "a.yaml converts"}) == "",
                  line);
}

TEST_CASE("FSDP_ environment variables set the keys that they name and no others") {
  setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "true", 1);
  const AccelerateSettings settings = accelerate_environment();
  unsetenv("FSDP_CPU_RAM_EFFICIENT_LOADING");
  REQUIRE(settings.presets.size() == 1);
  CHECK(settings.presets[0].key == "parallel.cpu_ram_efficient_loading");
  CHECK(settings.presets[0].origin == "environment FSDP_CPU_RAM_EFFICIENT_LOADING");
  CHECK(accelerate_environment().presets.empty());
}

TEST_CASE("comments, quotes, lists and document marks of YAML are read") {
  if (lacks_yaml()) return;
  const auto values = values_of(
      "---\n# a file\nuse_cpu: \"true\"  # on a laptop\nmixed_precision: 'bf16' # x\ntpu_env:\n- a\n- 'b'\n");
  CHECK(values.at("run.device") == "\"cpu\"");
  CHECK(values.at("precision.compute") == "\"bf16\"");
  CHECK(values_of("---\nuse_cpu: true\n...\n").at("run.device") == "\"cpu\"");
  CHECK(values_of("{use_cpu: true, tpu_env: [a, b]}").at("run.device") == "\"cpu\"");
  CHECK(values_of("distributed_type: FSDP\nfsdp_config: {fsdp_offload_params: true}\n")
            .at("parallel.offload") == "true");
  for (const char* nothing : {"", "---\n", "# a comment\n", "null\n"})
    CHECK(values_of(nothing).at("precision.compute") == "\"fp32\"");
  CHECK(values_of("distributed_type: FSDP\nfsdp_config:\n").at("parallel.strategy") == "\"full_shard\"");
}
