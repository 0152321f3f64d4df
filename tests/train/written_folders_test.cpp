// Model folders that runs write for Hugging Face transformers. tests/golden/check_folders.py opens the
// folders of these tests with transformers.

#include <filesystem>
#include <fstream>

#include "hub/adapted_model.h"
#include "hub/prompt_images.h"
#include "runtime/json.h"
#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/model/small_run.h"
#include "tests/test.h"
#include "tests/text/data/image_tokens.h"
#include "tests/tools/ckpt/ckpt_run.h"
#include "tests/train/image_workshop.h"
#include "text/tokenizer/tokenizer.h"
#include "tools/inference/find_model.h"

using namespace flatshard;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

// For f32 sums in another order, in models with large weights.
constexpr double kOtherOrder = 1e-4;

// Options of `train` that make a model of some kind.
const std::map<std::string, std::string> kModels{
    {"llama", "--model.family=llama --model.kv_heads=1"},
    {"llama_tied", "--model.family=llama --model.tied=true"},
    {"llama_linear",
     "--model.family=llama --model.rope_scaling.kind=linear --model.rope_scaling.factor=2 "
     "--model.rope_theta=1e6"},
    {"llama_llama3",
     "--model.family=llama --model.rope_scaling.kind=llama3 --model.rope_scaling.factor=8 "
     "--model.rope_scaling.original_max_positions=8"},
    {"mistral", "--model.family=mistral --model.window=5 --model.head_dim=8"},
    {"qwen2", "--model.family=qwen2"},
    {"qwen2_window", "--model.family=qwen2 --model.window=5"},
    {"qwen3", "--model.family=qwen3 --model.head_dim=10 --model.norm_eps=1e-5"},
    {"gemma2", "--model.family=gemma2 --model.window=5 --model.head_dim=6 --model.query_scalar=9"},
    {"gemma2_uncapped",
     "--model.family=gemma2 --model.window=0 --model.attention_softcap=0 --model.logit_softcap=0"},
    {"gemma3",
     "--model.family=gemma3 --model.window=5 --model.full_attention_blocks=[1] "
     "--model.window_rope_theta=100"},
    {"phi3", "--model.family=phi3 --model.window=5"},
    {"phi3_longrope",
     "--model.family=phi3 --model.max_positions=64 --model.rope_scaling.kind=longrope "
     "--model.rope_scaling.original_max_positions=8 --model.rope_scaling.factor=8 "
     "--model.rope_scaling.short_factor=[1,1.5,2,2.5,3,4] --model.rope_scaling.long_factor=[2,5,6,7,8,9]"},
    {"granite",
     "--model.family=granite --model.embedding_multiplier=3 --model.attention_multiplier=0.3 "
     "--model.residual_multiplier=0.4 --model.logit_divisor=2.5"},
    {"granite_plain", "--model.family=granite --model.tied=true"},
    {"glm4", "--model.family=glm4 --model.head_dim=12"},
    {"glm4_unbiased", "--model.family=glm4 --model.qkv_bias=false --model.partial_rotary_factor=1"},
    {"llama_yarn",
     "--model.family=llama --model.head_dim=12 --model.rope_scaling.kind=yarn --model.rope_scaling.factor=4 "
     "--model.rope_scaling.original_max_positions=8 --model.rope_scaling.beta_fast=4 "
     "--model.rope_scaling.beta_slow=0.5 --model.rope_scaling.truncate=false --model.rope_scaling.mscale=2 "
     "--model.rope_scaling.mscale_all_dim=0.5"},
    {"qwen2_yarn",
     "--model.family=qwen2 --model.rope_scaling.kind=yarn --model.rope_scaling.factor=2 "
     "--model.rope_scaling.original_max_positions=16 --model.rope_scaling.attention_factor=1.5"},
    {"olmo2", "--model.family=olmo2"},
    {"qwen3_moe",
     "--model.family=qwen3_moe --model.experts=6 --model.experts_per_token=3 --model.expert_ffn=32 "
     "--model.dense_blocks=[1] --model.norm_topk=true"},
    {"qwen2_moe",
     "--model.family=qwen2_moe --model.experts=4 --model.experts_per_token=2 --model.expert_ffn=32 "
     "--model.shared_ffn=24"},
    {"mixtral",
     "--model.family=mixtral --model.ffn=32 --model.experts=4 --model.experts_per_token=2 "
     "--train.router_aux_loss=0.01"},
    {"olmoe", "--model.family=olmoe --model.ffn=32 --model.experts=5 --model.experts_per_token=2"},
    {"granitemoe",
     "--model.family=granitemoe --model.ffn=32 --model.experts=5 --model.experts_per_token=2 "
     "--model.embedding_multiplier=3 --model.residual_multiplier=0.4 --checkpoint.shard_size=20KB"},
    {"glm4_moe",
     "--model.family=glm4_moe --model.experts=6 --model.experts_per_token=2 --model.expert_ffn=32 "
     "--model.shared_ffn=32 --model.expert_groups=3 --model.top_groups=2 --model.routed_scale=1.5 "
     "--model.dense_blocks=[0] --model.qk_norm=true"},
    {"gpt_oss",
     "--model.family=gpt_oss --model.experts=5 --model.experts_per_token=2 --model.ffn=32 --model.window=5 "
     "--model.rope_scaling.kind=yarn --model.rope_scaling.factor=4 "
     "--model.rope_scaling.original_max_positions=8 --model.rope_scaling.truncate=false"},
    {"gpt_oss_plain",
     "--model.family=gpt_oss --model.experts=4 --model.experts_per_token=2 --model.ffn=32 --model.window=0 "
     "--model.swiglu_limit=1"},
    {"smollm3", "--model.family=smollm3 --model.no_rope_every=2"},
    {"smollm3_window",
     "--model.family=smollm3 --model.window=5 --model.full_attention_every=2 --model.no_rope_every=1"},
    {"smollm3_layers",
     "--model.family=smollm3 --model.no_rope_blocks=[0] --model.window=5 --model.full_attention_blocks=[0]"},
    {"gpt2", "--model.family=gpt2"},
    {"gpt2_grown", "--model.family=gpt2 --model.pad_to_multiple_of=64 --checkpoint.shard_size=10KB"}};

// Options of `train` that make adapters of the model in golden/folders with the first words of the name.
const std::map<std::string, std::string> kAdapters{
    {"llama", "--lora.rank=4 --lora.layers=[1] --lora.rslora=true"},
    {"llama_grown", "--lora.rank=2 --lora.targets='[\"q_proj\", \"v_proj\"]' --model.vocab=70"},
    {"mistral", "--lora.rank=3 --lora.targets='.*(q_proj|down_proj)' --lora.exclude='[\"0.mlp.down_proj\"]'"},
    {"qwen2",
     "--lora.rank=2 --lora.init=gaussian --lora.rank_pattern='{q_proj = 5}' --lora.alpha_pattern='{k_proj = "
     "3}'"},
    {"qwen2_grown", "--lora.rank=1 --model.vocab=70"},
    {"qwen3", "--lora.rank=4 --lora.save_modules='[\"embed_tokens\", \"lm_head\"]'"},
    {"gemma2", "--lora.rank=4"},
    {"gemma3", "--lora.rank=3 --lora.save_modules='[\"k_norm\"]'"},
    {"phi3", "--lora.rank=4 --lora.targets='[\"qkv_proj\", \"gate_up_proj\", \"down_proj\"]'"},
    {"granite", "--lora.rank=2 --lora.targets='[\"q_proj\", \"down_proj\"]'"},
    {"glm4", "--lora.rank=3 --lora.targets='[\"v_proj\", \"gate_up_proj\"]'"},
    {"olmo2", "--lora.rank=2 --lora.save_modules='[\"q_norm\", \"post_feedforward_layernorm\"]'"},
    {"smollm3", "--lora.rank=2"},
    {"mixtral", "--lora.rank=2"},
    {"mixtral_experts",
     "--lora.rank=2 --lora.targets='[\"gate_up_proj\", \"down_proj\", \"v_proj\"]' "
     "--lora.alpha_pattern='{\"block_sparse_moe.experts.down_proj\" = 5}' "
     "--lora.save_modules='[\"block_sparse_moe.gate\"]'"},
    {"olmoe_experts",
     "--lora.rank=3 --lora.targets='.*(gate_up|down)_proj' --lora.rank_pattern='{down_proj = 5}' "
     "--lora.alpha_pattern='{gate_up_proj = 5}' --lora.rslora=true"},
    {"qwen2_moe_experts", "--lora.rank=2 --lora.targets='[\"k_proj\", \"experts.gate_up_proj\"]'"},
    {"qwen3_moe_experts", "--lora.rank=2 --lora.targets='[\"experts.down_proj\"]'"},
    {"glm4_moe_experts",
     "--lora.rank=2 --lora.targets='[\"o_proj\", \"experts.gate_up_proj\", \"experts.down_proj\"]'"},
    {"gpt_oss_experts",
     "--lora.rank=2 --lora.targets='[\"q_proj\", \"gate_up_proj\", \"down_proj\"]' "
     "--lora.rank_pattern='{down_proj = 3}'"},
    {"gpt_oss_block", "--lora.rank=2 --lora.targets='.*(down_proj|o_proj)' --lora.layers=[1]"},
    {"granitemoe_experts", "--lora.rank=2 --lora.targets='[\"experts.gate_up_proj\"]' --lora.rslora=true"},
    {"gpt2", "--lora.rank=4 --lora.alpha=8"}};

// Options of `train` that make a model with 64 or 128 columns in every matrix, and options of `ckpt
// quantize`: on the CPU bitsandbytes dequantizes correctly only rows that are whole blocks.
const std::string kWholeBlocks = " --model.hidden=64 --model.ffn=128 ";
const std::map<std::string, std::pair<std::string, std::string>> kFourBit{
    {"llama", {"--model.family=llama", "--double"}},
    {"qwen2", {"--model.family=qwen2", "--type fp4 --block 32 --storage bfloat16"}},
    {"gpt2", {"--model.family=gpt2", "--storage float32"}}};

// Two sequences over the vocabulary of every model here.
test::SmallRun::Golden text() {
  test::GoldenTensor tokens{.dtype = "I32", .shape = {2, 16}, .values = {}};
  for (int i = 0; i < 32; ++i) tokens.values.push_back((i * i + 3 * i) % 53);
  return {{"tokens", tokens}, {"targets", tokens}};
}

// The options of adapters, of all parts of a model that reads images.
constexpr char kAdaptersOfImages[] =
    " --lora.rank=2 --lora.targets='.*(q_proj|v_proj|down_proj|fc1|qkv|modality_projection.proj|mlp.0)' ";

// A sequence that shows the images of image_answers.py, as the files of the folder say.
test::SmallRun::Golden text_with_images(const std::string& folder) {
  const ImageInput input = read_image_input(folder).value();
  Conversation shown;
  shown.add("user", "", {{.path = test::picture("rgb.jpeg")}, {.path = test::picture("orientation_6.jpeg")}});
  find_image_sizes(shown);
  std::vector<double> tokens{5, 17, 2, 30}, rows;
  for (const ShownImage& image : shown.images) {
    for (int64_t i = 0; i < layout_of(input.rules, image.size).tokens; ++i) {
      rows.push_back(static_cast<double>(tokens.size()));
      tokens.push_back(input.token);
    }
    for (const double token : {7, 41, 8}) tokens.push_back(token);
  }
  const PromptImages images = read_images(input, shown.images);
  const int64_t patches = images.frames.back(), axes = input.rules.axes();
  std::vector<double> positions;  // of all frames on one axis, then on the next
  for (int64_t axis = 0; axis < axes; ++axis)
    for (int64_t frame = 0; frame < images.frame_count(); ++frame) {
      const int64_t count = images.rows_of(frame).patches;
      const auto first =
          images.positions.begin() + axes * images.frames[static_cast<size_t>(frame)] + axis * count;
      positions.insert(positions.end(), first, first + count);
    }
  const auto tensor = [](std::vector<int64_t> shape, std::vector<double> values) {
    return test::GoldenTensor{.dtype = "", .shape = std::move(shape), .values = std::move(values)};
  };
  const test::GoldenTensor text = tensor({1, std::ssize(tokens)}, tokens);
  return {{"tokens", text},
          {"targets", text},
          {"rows", tensor({std::ssize(rows)}, rows)},
          {"patches",
           tensor({patches, input.rules.patch_width()}, {images.patches.begin(), images.patches.end()})},
          {"patch_positions", tensor({axes, patches}, positions)},
          {"frames", tensor({std::ssize(images.frames)}, {images.frames.begin(), images.frames.end()})}};
}

std::vector<double> logits_of(const ModelSource& source, const test::SmallRun::Golden& shown = text()) {
  ModelConfig config = read_model_config(source);
  for (auto& [path, format] : config.quantized) format.compute = DType::f32;
  return test::SmallRun(config, shown, DType::f32, false,
                        [&](const Model& model, const ParamTensors& parameters, Stream& stream) {
                          read_model_weights(source, model, parameters, stream);
                        })
      .logits();
}

// For check_folders.py.
void write_ours(const std::string& folder, const std::vector<double>& logits,
                const test::SmallRun::Golden& shown = text()) {
  const test::GoldenTensor& text = shown.at("tokens");
  const std::vector<double>& tokens = text.values;
  const int64_t vocab = std::ssize(logits) / std::ssize(tokens);
  const SafetensorsLayout layout({{"tokens", DType::i32, {text.shape[0], text.shape[1]}},
                                  {"logits", DType::f32, {text.shape[0], text.shape[1], vocab}}});
  const std::vector<int32_t> ids(tokens.begin(), tokens.end());
  const std::vector<float> values(logits.begin(), logits.end());
  SafetensorsWriter writer(folder + "/ours.safetensors", layout, true);
  writer.write(0, 0, ids.data(), std::ssize(ids));
  writer.write(1, 0, values.data(), std::ssize(values));
  writer.finish();
}

// A workshop whose config.toml says nothing of the model.
test::Workshop workshop_without_model() {
  const test::Workshop workshop("written_from");
  std::string config = test::read_file("written_from/config.toml");
  config.erase(config.find("[model]"), config.find("[data]") - config.find("[model]"));
  std::ofstream("written_from/config.toml") << config;
  return workshop;
}

}  // namespace

TEST_CASE("written folders of a published model, checkpoint, last model and export, have its tokenizer") {
  const std::string run = "written_folders/published",
                    published = str(kSourceDir, "/tests/golden/folders/llama");
  fs::remove_all(run);
  fs::create_directories("written_folders");
  const test::Workshop workshop = workshop_without_model();
  const test::Finished trained =
      workshop.train(1, "--model.init_from=" + published + " --run.dir=../" + run +
                            " --checkpoint.save_every=4 --train.steps=4 && cd ../" + run +
                            " && @ckpt export step-4 exported --dtype f32");
  REQUIRE_MESSAGE(trained.exit_code == 0, trained.output);
  for (const char* folder : {"/step-4", "/model", "/exported"}) {
    write_ours(run + folder, logits_of(run + folder));
    for (const char* name :
         {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"})
      CHECK(test::read_file(str(run, folder, '/', name)) == test::read_file(published + "/" + name));
  }
}

TEST_CASE("written folders of runs on GGUF files give their tokens the same ids") {
  const std::string text = "the fox, <s>it's 12</s> w\u00f6lf<|im_end|>\n";
  for (const std::string tokenizer : {"gpt2", "qwen2", "llama2"}) {
    CAPTURE(tokenizer);
    const std::string run = "written_folders/gguf_" + tokenizer, base = run + ".gguf";
    fs::remove_all(run);
    fs::create_directories("written_folders");
    const std::string from = test::write_gguf(base, tokenizer);
    const test::Finished trained =
        workshop_without_model().train(1, "--model.init_from=../" + base + " --run.dir=../" + run +
                                              " --train.steps=1 --data.vocab=53 --precision.compute=fp32");
    REQUIRE_MESSAGE(trained.exit_code == 0, trained.output);
    const std::string folder = run + "/model";
    const Json written = Json::parse(test::read_file(folder + "/tokenizer.json"));
    const Json& vocabulary = written.at("model").at("vocab");
    const Tokenizer was(from), is(folder);
    for (const Json& added : written.at("added_tokens"))
      CHECK(vocabulary.value(added.at("content").get<std::string>(), -1) == added.at("id").get<int>());
    Json tokens = Json::array();
    for (int32_t id = 0; id < was.vocab(); ++id) {
      CHECK(is.token_text(id) == was.token_text(id));
      tokens.push_back(was.token_text(id));
    }
    CHECK(is.encode(text).ids == was.encode(text).ids);
    std::ofstream(folder + "/ours.json") << Json{{"tokens", tokens},
                                                 {"text", text},
                                                 {"ids", is.encode(text, false).ids},
                                                 {"with_ends", is.encode(text).ids}};
    write_ours(folder, logits_of(folder));
  }
}

TEST_CASE("written folders of each family, a checkpoint and the last model, are one model") {
  for (const auto& [name, options] : kModels) {
    CAPTURE(name);
    const std::string run = "written_folders/" + name;
    fs::remove_all(run);
    fs::create_directories("written_folders");
    const test::Workshop workshop("written_from");
    const test::Finished trained =
        workshop.train(1, options + " --run.dir=../" + run +
                              " --checkpoint.save_every=4 --train.steps=4 --precision.compute=fp32");
    REQUIRE_MESSAGE(trained.exit_code == 0, trained.output);
    const std::vector<double> logits = logits_of(run + "/step-4");
    CHECK(logits == logits_of(run + "/model"));
    for (const char* folder : {"/step-4", "/model"}) write_ours(run + folder, logits);
  }
}

TEST_CASE("written folders of models that read images, and of their adapters, are one model each") {
  for (const Family& family : families()) {
    if (!family.connector) continue;
    CAPTURE(family.name);
    const std::string run = str("written_folders/", family.name), base = run + "_base/model";
    for (const char* end : {"", "_base", "_adapter"}) fs::remove_all(run + end);
    fs::create_directories("written_folders");
    const test::Workshop workshop = test::workshop_with_images(run + "_base", family.name);
    const auto train = [&](const std::string& options) {
      const test::Finished trained = workshop.train(
          1, "--model.init_from=" + fs::absolute(base).string() +
                 " --model.vocab=100 --data.train=images.tok --data.eval=images.tok --data.packing=none "
                 "--checkpoint.save_every=4 --train.steps=4 --precision.compute=fp32 " +
                 options);
      REQUIRE_MESSAGE(trained.exit_code == 0, trained.output);
    };
    const test::SmallRun::Golden shown = text_with_images(base);
    const std::vector<double> before = logits_of(base, shown);
    write_ours(base, before, shown);

    train("--run.dir=../" + family.name);
    const std::vector<double> logits = logits_of(run + "/step-4", shown);
    CHECK(logits == logits_of(run + "/model", shown));
    CHECK(logits != before);
    for (const char* folder : {"/step-4", "/model"}) write_ours(run + folder, logits, shown);

    train(str("--run.dir=../", family.name, "_adapter", kAdaptersOfImages, "&& cd ../", family.name,
              "_adapter && @ckpt merge-adapter . --out merged --dtype f32"));
    const std::vector<double> adapted = logits_of(find_model(run + "_adapter", ""), shown);
    CHECK(adapted == logits_of({base, run + "_adapter/step-4"}, shown));
    CHECK(adapted != before);
    CHECK(bench::max_error(logits_of(run + "_adapter/merged", shown), adapted) < kOtherOrder);
    for (const char* folder : {"/step-4", "/adapter", "/merged"})
      write_ours(run + "_adapter" + folder, adapted, shown);
  }
}

TEST_CASE("written folders of adapters, a checkpoint and the last one, are one model and the merged one") {
  for (const auto& [name, options] : kAdapters) {
    CAPTURE(name);
    const std::string run = "written_folders/adapter_" + name,
                      base = str(kSourceDir, "/tests/golden/folders/", test::base_of_adapter(name));
    fs::remove_all(run);
    fs::create_directories("written_folders");
    const test::Finished trained = workshop_without_model().train(
        1,
        "--model.init_from=" + base + " --run.dir=../" + run + " " + options +
            " --optimizer.lr=1e-2 --checkpoint.save_every=4 --train.steps=4 --precision.compute=fp32 && cd "
            "../" +
            run + " && @ckpt merge-adapter . --out merged --dtype f32");
    REQUIRE_MESSAGE(trained.exit_code == 0, trained.output);
    const std::vector<double> logits = logits_of(find_model(run, ""));
    CHECK(logits == logits_of({base, run + "/step-4"}));
    CHECK(logits != logits_of(base));
    CHECK(bench::max_error(logits_of(run + "/merged"), logits) < kOtherOrder);
    for (const char* folder : {"/step-4", "/adapter", "/merged"}) write_ours(run + folder, logits);
  }
}

TEST_CASE("written folders of adapters of experts that PEFT made, and a run continued, are the same models") {
  for (const std::string name : {"gpt_oss_experts", "gpt_oss_up", "granitemoe_experts", "olmoe_experts",
                                 "mixtral_modules", "mixtral_single"}) {
    CAPTURE(name);
    const std::string run = "written_folders/continued_" + name,
                      base = str(kSourceDir, "/tests/golden/folders/", test::base_of_adapter(name)),
                      made = str(kSourceDir, "/tests/golden/adapters/", name);
    fs::remove_all(run);
    fs::create_directories("written_folders");
    const test::Finished trained = workshop_without_model().train(
        1, "--model.init_from=" + base + " --model.adapter=" + made + " --run.dir=../" + run +
               " --optimizer.lr=1e-30 --train.steps=2 --precision.compute=fp32");
    REQUIRE_MESSAGE(trained.exit_code == 0, trained.output);
    const std::vector<double> logits = logits_of({base, run + "/adapter"});
    CHECK(logits == logits_of({base, made}));
    write_ours(run + "/adapter", logits);
    if (name == "mixtral_single") continue;  // a run writes the tensors of all experts
    const SafetensorsFile written(run + "/adapter/adapter_model.safetensors"),
        theirs(made + "/adapter_model.safetensors");
    CHECK(written.entries().size() == theirs.entries().size());
    for (const SafetensorsEntry& entry : theirs.entries()) {
      CAPTURE(entry.name);
      REQUIRE(written.find(entry.name) != nullptr);
      CHECK(written.find(entry.name)->shape == entry.shape);
      CHECK(test::all_floats(*written.find(entry.name)) == test::all_floats(entry));
    }
  }
}

TEST_CASE("an adapter is continued as a whole, or not at all") {
  const std::string made = str(kSourceDir, "/tests/golden/adapters/olmoe_experts"),
                    changed = "written_from_changed";
  fs::remove_all(changed);
  fs::create_directories(changed);
  fs::copy_file(made + "/adapter_model.safetensors", changed + "/adapter_model.safetensors");
  Json config = Json::parse(test::read_file(made + "/adapter_config.json"));
  config["target_modules"] = ".*q_proj";  // select_experts() adds nothing to an expression
  std::ofstream(changed + "/adapter_config.json") << config;
  const test::Finished refused = workshop_without_model().train(
      1, str("--model.init_from=", kSourceDir, "/tests/golden/folders/olmoe --model.adapter=../", changed));
  CHECK(refused.exit_code == 1);
  CHECK_MESSAGE(
      test::missing_from(refused.output, {changed, ": has an adapter of model.layers.0.mlp.experts.",
                                          ", which its adapter_config.json does not select: list "}) == "",
      refused.output);
}

TEST_CASE("written folders of adapters on 4-bit weights are one model, and the one merged into 16 bits") {
  for (const auto& [name, options] : kFourBit) {
    CAPTURE(name);
    const std::string run = "written_folders/four_bit_" + name, base = run + "_base";
    for (const std::string& folder : {run, base, std::string("written_from/whole")}) fs::remove_all(folder);
    fs::create_directories("written_folders");
    const test::Finished made =
        test::Workshop("written_from")
            .train(1, options.first + kWholeBlocks +
                          "--train.steps=1 --run.dir=whole && @ckpt quantize whole/model " + options.second +
                          " --out ../" + base);
    REQUIRE_MESSAGE(made.exit_code == 0, made.output);
    const test::Finished trained = workshop_without_model().train(
        1, "--model.init_from=" + fs::absolute(base).string() + " --run.dir=../" + run +
               " --lora.rank=4 --optimizer.lr=1e-2 --checkpoint.save_every=4 --train.steps=4 "
               "--precision.compute=fp32 && cd ../" +
               run + " && @ckpt merge-adapter . --out merged --dtype f32");
    REQUIRE_MESSAGE(trained.exit_code == 0, trained.output);
    const std::vector<double> logits = logits_of(find_model(run, ""));
    CHECK(logits == logits_of({base, run + "/step-4"}));
    CHECK(bench::max_error(logits_of(base), logits) > 1e-2);
    CHECK(bench::max_error(logits_of(run + "/merged"), logits) < 1e-5);  // sums in another order
    for (const char* folder : {"/step-4", "/adapter", "/merged"}) write_ours(run + folder, logits);
  }
}
