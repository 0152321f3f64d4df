// Folders as Hugging Face writes and publishes them (tests/golden/folders.py made those of tests/golden),
// as the initial weights of runs.

#include "train/save/initial_weights.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "checkpoint/float_values.h"
#include "hub/adapted_model.h"
#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/job.h"
#include "tests/model/small_run.h"
#include "tests/small_model.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "text/data/token_file.h"
#include "train/report/metrics.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

// For f32 sums in another order; the weights of models with greedy text are large and amplify the rounding.
constexpr double kF32 = 1e-5, kLargeWeights = 1e-4;

const std::vector<std::string> kFolders{
    "llama",           "codellama", "llama3",     "mistral",    "qwen2",      "qwen3",     "gpt2",
    "gpt2_bare",       "gemma2",    "gemma3",     "phi3",       "olmo2",      "smollm3",   "smollm3_layers",
    "granite",         "glm4",      "llama_yarn", "qwen3_yarn", "phi3_short", "phi3_long", "qwen3_moe",
    "qwen3_moe_fused", "qwen2_moe", "mixtral",    "olmoe",      "granitemoe", "gpt_oss",   "gpt_oss_mxfp4"};

std::string folder_of(const std::string& name) { return str(kSourceDir, "/tests/golden/folders/", name); }

test::SmallRun::Golden expected_of(const std::string& name) {
  return test::load_golden("folders/" + name + "/expected");
}

// The text of the expected loss as a corpus, and a config that trains on it without model keys.
test::Workshop workshop_of(const std::string& name, const test::SmallRun::Golden& expected) {
  test::Workshop workshop(name);
  TokenWriter writer(workshop.file("text.tok"), 64);
  std::vector<int32_t> text;
  for (const double token : expected.at("tokens").values) text.push_back(static_cast<int32_t>(token));
  text.push_back(static_cast<int32_t>(expected.at("targets").values.back()));
  writer.add_document(text);
  writer.finish();
  std::ofstream(workshop.file("config.toml")) << R"(
[data]
train = "text.tok"
seq_len = 12
[train]
steps = 2
total_batch_size = 2
lane_size = 1
[optimizer]
lr = 1e-2
[precision]
compute = "fp32"
)";
  return workshop;
}

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

std::string init_from(const std::string& name) { return "--model.init_from=" + folder_of(name) + ' '; }

// A copy of a golden folder in a workshop, to be modified.
std::string copied(const test::Workshop& workshop, const std::string& name) {
  const std::string folder = workshop.file(name);
  fs::remove_all(folder);
  fs::copy(folder_of(name), folder);
  return folder;
}

void replace_in(const std::string& path, const std::string& from, const std::string& to) {
  std::string text = test::read_file(path);
  REQUIRE(text.find(from) != std::string::npos);
  text.replace(text.find(from), from.size(), to);
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("folders written by transformers give its logits, loss and gradients") {
  for (const std::string& name : kFolders) {
    CAPTURE(name);
    const auto expected = expected_of(name);
    test::SmallRun run(read_hf_config(folder_of(name) + "/config.json"), expected, DType::f32, false,
                       [&](const Model& model, const ParamTensors& parameters, Stream& stream) {
                         read_model_weights(folder_of(name), model, parameters, stream);
                       });
    CHECK(run.loss() == doctest::Approx(expected.at("loss").values[0]).epsilon(kF32));
    const double tolerance = expected.contains("greedy") ? kLargeWeights : kF32;
    CHECK(bench::max_error(run.logits(), expected.at("logits").values) < tolerance);
    const auto [error, parameter] = run.gradient_error(expected);
    CAPTURE(parameter);
    CHECK(error < 2 * tolerance);  // processors without AVX-512 sum products in another order: 1.13e-4
  }
}

TEST_CASE("a run from published weights starts with their loss and gradient norm on any number of ranks") {
  constexpr const char* kSpreads[] = {"--parallel.cpu_ram_efficient_loading=true",
                                      "--parallel.strategy=no_shard", "--parallel.strategy=shard_grad_op"};
  size_t next = 0;
  for (const std::string& name : kFolders) {
    CAPTURE(name);
    const auto expected = expected_of(name);
    const test::Workshop workshop = workshop_of("initial_" + name, expected);
    const test::Finished one = workshop.train(1, init_from(name));
    REQUIRE_MESSAGE(one.exit_code == 0, one.output);
    const StepMetrics first = read_metrics(workshop.file("runs/default/metrics.jsonl")).front();
    const double targets = static_cast<double>(expected.at("targets").values.size());
    double squares = 0;
    for (const auto& [tensor, golden] : expected)
      if (tensor.starts_with("grad."))
        for (const double g : golden.values) squares += g * g;
    CHECK(first.loss == doctest::Approx(expected.at("loss").values[0] / targets).epsilon(kF32));
    CHECK(first.grad_norm == doctest::Approx(std::sqrt(squares) / targets).epsilon(kF32));
    if (!test::no_ranks_because().empty()) continue;
    const test::Finished two = workshop.train(2, init_from(name) + kSpreads[next++ % std::size(kSpreads)]);
    CHECK_MESSAGE(hash_of(two) == hash_of(one), two.output);
    CHECK(hash_of(two).size() == 64);
  }
}

TEST_CASE("published weights load with frozen parameters, offload and hybrid sharding") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop = workshop_of("initial_spread", expected_of("llama"));
  const std::string options =
      init_from("llama") +
      "--precision.compute=bf16 --train.total_batch_size=4 --model.trainable='[\"model.layers.1.*\"]' ";
  const std::string whole = hash_of(workshop.train(1, options));
  CHECK(whole.size() == 64);
  for (const std::string spread :
       {"--parallel.offload=true", "--parallel.strategy=hybrid --parallel.group_size=2",
        "--parallel.strategy=hybrid --parallel.group_size=2 --parallel.cpu_ram_efficient_loading=true"}) {
    const test::Finished run = workshop.train(4, options + spread);
    CHECK_MESSAGE(hash_of(run) == whole, run.output);
  }
}

TEST_CASE("with cpu_ram_efficient_loading only rank 0 needs the weights") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop = workshop_of("initial_rank_0", expected_of("qwen2"));
  const std::string hash = hash_of(workshop.train(1, init_from("qwen2")));
  fs::remove_all(workshop.file("folder"));
  fs::create_directories(workshop.file("other/folder"));
  fs::copy(folder_of("qwen2"), workshop.file("folder"));
  fs::copy(folder_of("qwen2") + "/config.json", workshop.file("other/folder"),
           fs::copy_options::overwrite_existing);
  for (const char* name : {"config.toml", "text.tok"})
    fs::copy_file(workshop.file(name), workshop.file(str("other/", name)),
                  fs::copy_options::overwrite_existing);
  const std::string options =
      " config.toml --model.init_from=folder --run.dir=" + fs::absolute(workshop.file("run")).string() +
      " --parallel.cpu_ram_efficient_loading=";
  const auto run = [&](const std::string& efficient) {
    test::Job job("initial_rank_0", "-np 1 @train" + options + efficient +
                                        " : -np 1 sh -c 'cd other && exec @train" + options + efficient +
                                        "'");
    return job.wait();
  };
  const test::Finished with = run("true");
  CHECK_MESSAGE(hash_of(with) == hash, with.output);
  CHECK(with.output.find("from      folder/model.safetensors, BF16, read by rank 0 for all ranks\n") !=
        std::string::npos);
  const test::Finished without = run("false");
  CHECK(without.exit_code == 1);
  CHECK_MESSAGE(without.output.find("on rank 1: folder/model.safetensors: cannot open") != std::string::npos,
                without.output);
}

TEST_CASE("a run takes the config of a model folder and resumes without that folder") {
  const test::Workshop workshop = workshop_of("initial_config", expected_of("qwen3"));
  const std::string folder = copied(workshop, "qwen3");
  replace_in(folder + "/config.json", "\"eos_token_id\": null", "\"eos_token_id\": 7");
  const test::Finished plan = workshop.train(1, "--model.init_from=qwen3 --plan");
  CHECK_MESSAGE(
      plan.output.find("model     qwen3, 2 layers, hidden 32, 4 heads of 6 (2 for keys and values)") !=
          std::string::npos,
      plan.output);
  CHECK(plan.output.find("\nfrom      qwen3/model.safetensors, F32\n") != std::string::npos);
  const test::Finished printed = workshop.train(1, "--model.init_from=qwen3 --print-config");
  CHECK(printed.output.find("# qwen3/config.json") != std::string::npos);
  const test::Finished run =
      workshop.train(1, "--model.init_from=qwen3 --run.dir=run --checkpoint.save_every=1");
  CHECK_MESSAGE(hash_of(run).size() == 64, run.output);
  const std::string again =
      test::run_command("cd initial_config && @train run/config.toml --run.dir=again").output;
  CHECK_MESSAGE(test::after(again, "\nweights ") == hash_of(run), again);
  fs::remove_all(folder);
  const std::string on = test::run_command(
                             "cd initial_config && sed /init_from/d run/config.toml > on.toml && "
                             "@train on.toml --run.dir=on --resume run/step-1")
                             .output;
  CHECK_MESSAGE(test::after(on, "\nweights ") == hash_of(run), on);
  // The end token is copied with the weights.
  for (const char* written : {"run/step-1", "run/model", "on/model"})
    CHECK(test::read_file(workshop.file(str(written, "/config.json"))).find("\"eos_token_id\": 7,") !=
          std::string::npos);
}

TEST_CASE("the tokenizer of a model folder is copied into everything derived from it") {
  const test::Workshop workshop = workshop_of("initial_tokenizer_files", expected_of("qwen3"));
  const std::string folder = copied(workshop, "qwen3");
  const std::map<std::string, std::string> files{{"tokenizer.json", "{\"a\": 1}"},
                                                 {"tokenizer_config.json", "{}"},
                                                 {"merges.txt", "#version\n"},
                                                 {"generation_config.json", "{\"eos_token_id\": 3}"},
                                                 {"tokenizer.model", std::string("\0\xff", 2)}};
  for (const auto& [name, text] : files) std::ofstream(folder + "/" + name, std::ios::binary) << text;
  std::ofstream(folder + "/README.md") << "another model's";
  const auto check_files = [&](const std::string& made) {
    CAPTURE(made);
    for (const auto& [name, text] : files) CHECK(test::read_file(workshop.file(made + "/" + name)) == text);
    CHECK(!fs::exists(workshop.file(made + "/README.md")));
  };
  const int ranks = test::no_ranks_because().empty() ? 2 : 1;
  fs::create_directories(workshop.file("run/model"));
  std::ofstream(workshop.file("run/config.toml"))
      << "# The config of the run in this folder, as train resolved it.\n";
  std::ofstream(workshop.file("run/model/vocab.json")) << "an earlier run's";
  const test::Finished run =
      workshop.train(ranks, "--model.init_from=qwen3 --run.dir=run --checkpoint.save_every=1");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  for (const char* made : {"run/step-1", "run/step-2", "run/model"}) check_files(made);
  CHECK(!fs::exists(workshop.file("run/model/vocab.json")));

  fs::remove_all(folder);  // a checkpoint no longer needs it
  const test::Finished on = test::run_command(
      "cd initial_tokenizer_files && @train run/config.toml --model.init_from= --run.dir=on --resume "
      "run/step-1 "
      "&& "
      "@ckpt export run/step-1 exported && @ckpt verify on/step-2");
  CHECK_MESSAGE(test::after(on.output, "\nweights ") == hash_of(run), on.output);
  CHECK(on.exit_code == 0);
  for (const char* made : {"on/step-2", "on/model", "exported"}) check_files(made);
}

TEST_CASE("a tokenizer file is read through a link only into its folder or a cache") {
  const std::string root = "tokenizer_files", folder = root + "/model/snapshots/1";
  fs::remove_all(root);
  fs::create_directories(folder);
  fs::create_directories(root + "/model/blobs");
  const auto put = [&](const std::string& path, const std::string& text) {
    std::ofstream(root + "/" + path, std::ios::binary) << text;
  };
  put("model/snapshots/1/vocab.json", "vocabulary");
  put("model/blobs/f00d", "blob");
  put("secret", "secret");
  fs::create_symlink("vocab.json", folder + "/encoder.json");
  fs::create_symlink("../../blobs/f00d", folder + "/tokenizer.json");
  const TokenizerFiles expected{
      {"encoder.json", "vocabulary"}, {"tokenizer.json", "blob"}, {"vocab.json", "vocabulary"}};
  CHECK(read_tokenizer_files(folder) == expected);
  CHECK(read_tokenizer_files(folder + "/") == expected);
  fs::create_directory_symlink("snapshots/1", root + "/model/main");
  CHECK(read_tokenizer_files(root + "/model/main") == expected);
  CHECK(read_tokenizer_files("").empty());

  const auto refused = [&](const std::string& name, const std::string& target, const std::string& reason) {
    fs::create_symlink(target, folder + "/" + name);
    CAPTURE(target);
    const std::string error = test::error_of([&] { read_tokenizer_files(folder); });
    CAPTURE(error);
    CHECK(error.starts_with(folder + "/" + name + ": "));
    CHECK(error.find(reason) != std::string::npos);
    fs::remove(folder + "/" + name);
  };
  refused("merges.txt", "../../../secret", "links to ");
  refused("merges.txt", "/dev/zero", "links to /dev/zero, outside of the folder");
  refused("merges.txt", "nothing", "cannot open: No such file or directory");
  refused("merges.txt", "merges.txt", "cannot open: Too many levels of symbolic links");
  refused("merges.txt", ".", "outside of the folder");
  fs::create_directory(folder + "/vocab.bpe");
  CHECK(test::error_of([&] { read_tokenizer_files(folder); }) == folder + "/vocab.bpe: not a regular file");
  fs::remove(folder + "/vocab.bpe");
  put("model/snapshots/1/vocab.bpe", "");
  fs::resize_file(folder + "/vocab.bpe", (64 << 20) + 1);
  CHECK(test::error_of([&] { read_tokenizer_files(folder); }) ==
        folder + "/vocab.bpe: has 67108865 bytes, must have at most 67108864");
}

TEST_CASE("rows added to a vocabulary are the mean of the others") {
  for (const std::string name : {"qwen2", "gpt2", "llama"}) {  // two tied heads, and an untied one
    CAPTURE(name);
    const test::Workshop workshop = workshop_of("initial_growth", expected_of(name));
    fs::remove_all(workshop.file("run"));
    const int ranks = test::no_ranks_because().empty() ? 2 : 1;
    const test::Finished run =
        workshop.train(ranks, init_from(name) +
                                  "--model.vocab=66 --model.pad_to_multiple_of=8 --run.dir=run "
                                  "--optimizer.lr=1e-30");
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    CHECK(
        run.output.find("the vocabulary grows from 64 to 72; new rows are the mean of the existing ones\n") !=
        std::string::npos);
    CHECK(read_hf_config(workshop.file("run/model/config.json")).vocab == 72);
    const TensorFolder before(folder_of(name), "model"), after(workshop.file("run/model"), "model");
    for (const auto& [tensor, entry] : after.entries()) {
      CAPTURE(tensor);
      const SafetensorsEntry& old = *before.find(tensor);
      if (old.shape == entry->shape) continue;
      REQUIRE(old.shape[0] == 64);
      REQUIRE(entry->shape == std::vector<int64_t>{72, old.shape[1]});
      std::vector<float> rows(static_cast<size_t>(72 * old.shape[1]));
      read_floats(*entry, 0, std::ssize(rows), rows.data());
      for (int64_t column = 0; column < old.shape[1]; ++column) {
        double sum = 0;
        for (int64_t row = 0; row < 64; ++row)
          sum += static_cast<double>(rows[static_cast<size_t>(row * old.shape[1] + column)]);
        for (int64_t row = 64; row < 72; ++row)
          CHECK(rows[static_cast<size_t>(row * old.shape[1] + column)] == static_cast<float>(sum / 64));
      }
    }
    CHECK(after.find(name == "gpt2" ? "transformer.wte.weight" : "model.embed_tokens.weight")->shape[0] ==
          72);
  }
  const test::Workshop workshop = workshop_of("initial_growth", expected_of("llama"));
  CHECK(workshop.train(1, init_from("llama") + "--model.vocab=63 --plan").output ==
        str("train: command line: model.vocab is 63, must be at least 64, the vocabulary of ",
            folder_of("llama"), "/config.json\n"));
}

TEST_CASE("published weights with a non-finite value are refused with its position") {
  const test::Workshop workshop = workshop_of("initial_nan", expected_of("qwen3"));
  const std::string folder = copied(workshop, "qwen3");
  int64_t at = 0;
  {
    const SafetensorsFile file(folder + "/model.safetensors");
    at = file.find("model.norm.weight")->bytes.begin + 4 * 5;
  }
  std::fstream file(folder + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file.write("\0\0\xc0\x7f", 4);
  file.close();
  const test::Finished run = workshop.train(1, "--model.init_from=qwen3");
  CHECK(run.exit_code == 1);
  CHECK_MESSAGE(
      run.output.ends_with("train: qwen3/model.safetensors: model.norm.weight: element 5 is nan, must be "
                           "finite: the weights are damaged: download them again\n"),
      run.output);
}

TEST_CASE("config values must agree with those of the model folder") {
  const test::Workshop workshop = workshop_of("initial_besides", expected_of("mistral"));
  CHECK(workshop.train(1, init_from("mistral") + "--model.hidden=32 --model.window=5 --plan").exit_code == 0);
  CHECK(workshop.train(1, init_from("mistral") + "--model.hidden=24 --plan").output ==
        str("train: --model.hidden: model.hidden is 24, but ", folder_of("mistral"),
            "/config.json says 32: remove it\n"));
  CHECK(workshop.train(1, init_from("mistral") + "--model.family=llama")
            .output.find("model.family is \"llama\", but ") != std::string::npos);
  CHECK(workshop.train(1, init_from("mistral") + "--data.seq_len=33").output ==
        str("train: --data.seq_len, ", folder_of("mistral"),
            "/config.json: data.seq_len = 33 is longer than model.max_positions = 32\n"));
}

TEST_CASE("an incomplete folder is refused before training, also by --plan, with the reason") {
  const test::Workshop workshop = workshop_of("initial_spoilt", expected_of("llama"));
  const auto refused = [&](const std::string& message) {
    for (const std::string plan : {"", " --plan"}) {
      const test::Finished run = workshop.train(1, "--model.init_from=llama" + plan);
      CHECK(run.exit_code == 1);
      CHECK(run.output == "train: " + message + "\n");
      CHECK(!fs::exists(workshop.file("runs")));
    }
  };
  const std::string index = "llama/model.safetensors.index.json";
  fs::remove_all(workshop.file("llama"));
  CHECK(workshop.train(1, "--model.init_from=llama --plan")
            .output.starts_with(
                "train: --model.init_from: model.init_from is \"llama\", which does not exist"));
  const std::string folder = copied(workshop, "llama");
  replace_in(folder + "/config.json", "\"hidden_size\": 32", "\"hidden_size\": 16");
  refused(
      index +
      ": the tensors do not match config.json; 21 with a wrong shape: model.embed_tokens.weight [64, 32] "
      "instead of [64, 16], model.layers.0.input_layernorm.weight [32] instead of [16], "
      "model.layers.0.self_attn.q_proj.weight "
      "[32, 32] instead of [32, 16], model.layers.0.self_attn.k_proj.weight [16, 32] instead of [16, 16], "
      "model.layers.0.self_attn.v_proj.weight [16, 32] instead of [16, 16], "
      "model.layers.0.self_attn.o_proj.weight "
      "[32, 32] instead of [16, 32], ...: download all files of the folder again, from one model");
  copied(workshop, "llama");
  replace_in(folder + "/config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  refused(
      index +
      ": the tensors do not match config.json; 9 unexpected: model.layers.1.input_layernorm.weight, "
      "model.layers.1.mlp.down_proj.weight, model.layers.1.mlp.gate_proj.weight, "
      "model.layers.1.mlp.up_proj.weight, model.layers.1.post_attention_layernorm.weight, "
      "model.layers.1.self_attn.k_proj.weight, ...: download all files of the folder again, from one model");
  copied(workshop, "llama");
  fs::remove(folder + "/model-00002-of-00003.safetensors");
  refused("llama/model-00002-of-00003.safetensors: cannot open: No such file or directory");
  fs::copy_file(folder + "/model-00001-of-00003.safetensors", folder + "/model-00002-of-00003.safetensors");
  const test::Finished run = workshop.train(1, "--model.init_from=llama");
  CHECK_MESSAGE(
      run.output.find("is in both model-00001-of-00003.safetensors and model-00002-of-00003.safetensors") !=
          std::string::npos,
      run.output);
  copied(workshop, "llama");
  fs::resize_file(folder + "/model-00003-of-00003.safetensors", 20000);
  CHECK(workshop.train(1, "--model.init_from=llama")
            .output.find("model-00003-of-00003.safetensors: incomplete buffer") != std::string::npos);
}
