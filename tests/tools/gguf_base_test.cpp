// A GGUF file in place of a model folder, in every program that takes one.

#include <cmath>
#include <cstring>
#include <filesystem>

#include "hub/adapter_base.h"
#include "hub/published_weights.h"
#include "runtime/whole_file.h"
#include "tests/checkpoint_content.h"
#include "tests/process.h"
#include "tests/test.h"
#include "tests/tools/ckpt/ckpt_run.h"
#include "tests/workshop.h"
#include "text/data/token_file.h"
#include "tools/inference/find_model.h"
#include "tools/programs.h"

using namespace flatshard;
using namespace flatshard::test;
namespace fs = std::filesystem;

namespace {

// The folder of base.gguf, text.jsonl and, with adapters, a run of two steps, made once.
const std::string& made() {
  static const std::string folder = [] {
    fs::remove_all("gguf_base");
    const Workshop workshop("gguf_base");
    write_gguf("gguf_base/base.gguf", "gpt2");
    std::string text;
    for (int i = 0; i < 4; ++i) text += "{\"text\": \"the fox and the wolf in the box\"}\n";
    write_file("gguf_base/text.jsonl", text);
    std::string config = read_file("gguf_base/config.toml");
    config.erase(config.find("[model]"), config.find("[data]") - config.find("[model]"));
    write_file("gguf_base/config.toml", config);
    const Finished run = workshop.train(
        1,
        "--model.init_from=base.gguf --run.dir=run --lora.rank=2 --optimizer.lr=0.1 --train.steps=2 "
        "--train.eval_every=1 --checkpoint.save_every=1 --precision.compute=fp32 --data.train=text.jsonl "
        "--data.eval=text.jsonl");
    check(run.exit_code == 0, run.output);
    return std::string("gguf_base");
  }();
  return folder;
}

std::string in(const std::string& command) {
  const Finished finished = run_command("cd " + made() + " && " + command);
  CHECK_MESSAGE(finished.exit_code == 0, finished.output);
  return finished.output;
}

void run(const std::vector<std::string>& words) {
  const Ran ran = ckpt(words);
  CAPTURE(ran);
  CHECK(ran.exit_code == 0);
}

// The values of all weights, by name.
std::map<std::string, std::vector<float>> values_of(const std::string& model) {
  Arena tables("tables", Device::cpu());  // only counts
  const ModelConfig config = read_published_config(model);
  const Model shapes(config, tables);
  PublishedWeights weights(model, shapes, config.vocab);
  std::map<std::string, std::vector<float>> values;
  for (const SafetensorsSpec& spec : weight_specs(shapes, DType::f32)) {
    int64_t n = 1;
    for (const int64_t extent : spec.shape) n *= extent;
    std::vector<float>& to = values[spec.name];
    to.resize(static_cast<size_t>(n));
    weights.read(spec.name, 0, n, to.data());
  }
  return values;
}

}  // namespace

TEST_CASE("the base of an adapter may be a GGUF file, found by the adapter or named") {
  const std::string base = made() + "/base.gguf", run = made() + "/run";
  for (const ModelSource& found :
       {find_model(run, ""), find_model("", run + "/step-2"), find_model(base, run)}) {
    CHECK(fs::equivalent(found.folder, base));
    CHECK(!found.adapter.empty());
  }
  CHECK(read_adapter_base(run + "/adapter")->folder == fs::absolute(base).string());
  // It moves, beside its run or elsewhere.
  fs::remove_all("gguf_moved");
  fs::create_directory("gguf_moved");
  fs::copy(run, "gguf_moved/run", fs::copy_options::recursive);
  const auto error = [] { return error_of([] { find_model("gguf_moved/run", ""); }); };
  fs::rename(base, "gguf_moved/base.gguf");
  CHECK(fs::equivalent(find_model("gguf_moved/run", "").folder, "gguf_moved/base.gguf"));
  fs::rename("gguf_moved/base.gguf", base);
  write_file("gguf_moved/base.gguf", "no longer");
  CHECK(fs::equivalent(find_model("gguf_moved/run", "").folder, base));
  fs::rename(base, "gguf_moved/other.gguf");
  CHECK(missing_from(error(), {"\"base.gguf\"", "neither a folder nor a GGUF file", "which is gone",
                               "--adapter"}) == "");
  check_refused({"merge", "gguf_moved/run", "gguf_moved/out"}, "GGUF file of the base with --base");
  check_refused({"merge-adapter", "gguf_moved/run", "gguf_moved/out"},
                "GGUF file of the base before the adapter");
  fs::rename("gguf_moved/other.gguf", base);
  write_gguf("gguf_moved/base.gguf", "llama3");
  CHECK(error_of([&] { find_model("gguf_moved/base.gguf", run); }).find("is not the base of") !=
        std::string::npos);
}

TEST_CASE("generate and evaluate run an adapter on a GGUF file") {
  const std::string options = " --device cpu",
                    prompt = options + " --prompt 'the fox' --max-new-tokens 3 --temperature 0";
  const std::string alone = in("@generate base.gguf" + prompt + " 2>/dev/null"),
                    adapted = in("@generate run" + prompt + " 2>/dev/null");
  CHECK(adapted != alone);
  CHECK(adapted == in("@generate base.gguf --adapter run/adapter" + prompt + " 2>/dev/null"));
  CHECK(in("@evaluate loss run text.jsonl" + options + " 2>/dev/null") ==
        in("@evaluate loss base.gguf --adapter run text.jsonl" + options + " 2>/dev/null"));
}

TEST_CASE("prepare reads the tokenizer of a GGUF file") {
  const std::string tokens = made() + "/";
  for (const std::string name : {"base.gguf", "base.gguf.folder"}) {
    std::istringstream none;
    std::ostringstream out, err;
    const int code =
        run_prepare({"--tokenizer", tokens + name, "--out", tokens + name + ".tok", tokens + "text.jsonl"},
                    {none, out, err});
    CHECK_MESSAGE(code == 0, err.str());
  }
  const TokenFile of_file(tokens + "base.gguf.tok"), of_folder(tokens + "base.gguf.folder.tok");
  REQUIRE(of_file.size() == of_folder.size());
  std::vector<int32_t> left(static_cast<size_t>(of_file.size())), right = left;
  of_file.read(0, left);
  of_folder.read(0, right);
  CHECK(left == right);
}

TEST_CASE("ckpt merges an adapter into a GGUF file") {
  const std::string work = made() + "/";
  for (const char* out : {"merged", "added", "named", "folder"}) fs::remove_all(work + out);
  run({"merge", work + "run", work + "merged", "--dtype", "f32"});
  run({"merge-adapter", work + "run/step-2", work + "added", "--dtype", "f32"});
  run({"merge-adapter", work + "base.gguf", work + "run/step-2", work + "named", "--dtype", "f32"});
  run({"merge-adapter", work + "base.gguf.folder", work + "run/step-2", work + "folder", "--dtype", "f32",
       "--other-base"});
  const auto merged = values_of(work + "merged");
  CHECK(merged != values_of(work + "base.gguf"));
  for (const char* out : {"added", "named", "folder"}) CHECK(values_of(work + out) == merged);
  CHECK(names_in(work + "merged").contains("tokenizer.json"));
  CHECK(read_hf_config(work + "merged/config.json").vocab ==
        read_hf_config(work + "base.gguf.folder/config.json").vocab);
}

TEST_CASE("ckpt exports, quantizes, verifies and compares a GGUF file") {
  const std::string work = made() + "/", base = work + "base.gguf";
  for (const char* out : {"exported", "small", "four_bit", "two_bytes"}) fs::remove_all(work + out);
  run({"export", base, work + "exported"});
  CHECK(values_of(work + "exported") == values_of(base));
  CHECK(read_file(work + "exported/config.json").find("float32") != std::string::npos);
  for (const char* other : {"exported", "base.gguf.folder", "base.gguf"}) {
    const Ran same = ckpt({"diff", base, work + other});
    CAPTURE(same);
    CHECK(same.exit_code == 0);
    CHECK(has(same.out, "tensors: 21 equal bit for bit, 0 different, 0 in one model only"));
  }
  run({"export", base, work + "half.gguf", "--type", "f16"});
  run({"export", work + "half.gguf", work + "two_bytes"});
  const Ran other = ckpt({"diff", base, work + "two_bytes"});
  CHECK(other.exit_code == 1);
  CHECK(has(other.out, "largest difference: "));
  CHECK(has(other.out, "tensors: 5 equal bit for bit, 16 different"));  // norms stay fp32
  CHECK(read_file(work + "two_bytes/config.json").find("float16") != std::string::npos);
  run({"verify", base});
  run({"inspect", base, "--all"});
  run({"quantize", base, work + "four_bit", "--dtype", "f16"});
  CHECK(has(ckpt({"inspect", work + "four_bit"}).out, "4-bit       14 weights"));
  check_refused({"verify", work + "config.toml"}, "is neither a folder nor a GGUF file");
  check_refused({"diff", base, work + "run/adapter"}, "is an adapter");
  check_refused({"best", base}, "base.gguf: is not a run folder");
  CHECK(error_of([&] { read_published_config(work + "config.toml"); }) ==
        work + "config.toml: is neither a folder nor a GGUF file");
}

TEST_CASE("verify names a value of a GGUF file that is not finite") {
  const std::string path = made() + "/nan.gguf";
  fs::copy_file(made() + "/base.gguf", path, fs::copy_options::overwrite_existing);
  int64_t at = 0;
  {
    const GgufFile file(path);
    at = file.find("blk.0.ffn_up.weight")->begin;
  }
  std::string bytes = read_whole_file(path, 1 << 30);
  const float nan = std::nanf("");
  std::memcpy(bytes.data() + at, &nan, sizeof nan);
  write_file(path, bytes);
  const Ran ran = ckpt({"verify", path});
  CHECK(ran.exit_code == 1);
  CHECK(has(ran.out, "model.layers.0.mlp.up_proj.weight: element 0 is nan"));
}

TEST_CASE("ckpt merges a checkpoint into a GGUF file that its run started from") {
  const std::string work = made() + "/";
  for (const char* out : {"whole_run", "onto"}) fs::remove_all(work + out);
  in("@train config.toml --model.init_from=base.gguf --run.dir=whole_run --train.steps=1 "
     "--checkpoint.save_every=1 "
     "--precision.compute=fp32 --data.train=text.jsonl --data.eval=text.jsonl");
  run({"merge", work + "whole_run", work + "onto", "--base", work + "base.gguf"});
  CHECK(values_of(work + "onto") == values_of(work + "whole_run/model"));
}
