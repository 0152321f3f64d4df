// The program ckpt, as users start it, on the checkpoints of a real run.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "checkpoint/checksums.h"
#include "checkpoint/float_values.h"
#include "runtime/rng.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "train/checkpoint_names.h"
#include "train/ckpt_program.h"
#include "train/tensor_sets.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

struct Ran {
  int exit_code;
  std::string out, err;
};
std::ostream& operator<<(std::ostream& out, const Ran& ran) {
  return out << ran.exit_code << '\n' << ran.out << ran.err;
}

Ran ckpt(const std::vector<std::string>& words) {
  std::vector<const char*> argv{"ckpt"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  std::ostringstream out, err;
  const int code = ckpt_main(static_cast<int>(argv.size()), argv.data(), out, err);
  return {code, out.str(), err.str()};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// What ckpt says where it cannot do what was asked.
void check_refused(const std::vector<std::string>& words, const std::string& reason) {
  const Ran ran = ckpt(words);
  CAPTURE(ran);
  CHECK(ran.exit_code == 2);
  CHECK(ran.err.starts_with("ckpt: "));
  CHECK(has(ran.err, reason));
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Changes the state of a checkpoint, and its checksums with it.
template <class Change>
void change_state(const std::string& checkpoint, Change&& change) {
  TrainState state = read_train_state(checkpoint + "/train_state.json");
  change(state);
  write_file(checkpoint + "/train_state.json", to_json(state));
  const Checksums before = Checksums::read(checkpoint);
  Checksums sums;
  for (const auto& [name, file] : before.files()) sums.add(name, test::read_file(checkpoint + "/" + name));
  write_file(checkpoint + "/checksums", sums.text());
}

void set_loss(const std::string& checkpoint, std::optional<double> loss) {
  change_state(checkpoint, [&](TrainState& state) { state.eval_loss = loss; });
}

// A folder with a run of 6 steps: checkpoints after 2, 4 and 6, of which 4 is the best, and model/. Made
// once; every test works on a copy.
std::string copy_of_run(const std::string& name) {
  static const std::string made = [] {
    fs::remove_all("ckpt_made");
    const test::Workshop workshop("ckpt_made");
    const test::Finished run = workshop.train(1, "--run.dir=run --checkpoint.save_every=2");
    check(run.exit_code == 0, run.output);
    int step = 2;
    for (const double loss : {3.5, 3.25, 3.75}) set_loss(str("ckpt_made/run/step-", step), loss), step += 2;
    return std::string("ckpt_made/run");
  }();
  fs::remove_all(name);
  fs::copy(made, name, fs::copy_options::recursive);
  return name;
}

void flip_byte(const std::string& path, int64_t at) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

std::vector<float> all_floats(const SafetensorsEntry& entry) {
  std::vector<float> values(static_cast<size_t>(element_count(entry)));
  read_floats(entry, 0, std::ssize(values), values.data());
  return values;
}

// A model folder of a config and tensors made by hand.
void write_model(const std::string& folder, const std::string& config,
                 const std::vector<SafetensorsSpec>& specs, const std::vector<float>& values) {
  fs::create_directories(folder);
  write_file(folder + "/config.json", config);
  const SafetensorsLayout layout(specs);
  SafetensorsWriter writer(folder + "/model.safetensors", layout, true);
  for (size_t i = 0; i < specs.size(); ++i) writer.write(i, 0, values.data(), layout.elements(i));
  writer.finish();
}

}  // namespace

TEST_CASE("inspect says what a run, a checkpoint and a model folder are") {
  const std::string run = copy_of_run("ckpt_inspect");
  const Ran of_run = ckpt({"inspect", run});
  CAPTURE(of_run);
  CHECK(of_run.exit_code == 0);
  CHECK(has(of_run.out, "step-4  "));
  CHECK(has(of_run.out, "evaluation loss 3.25"));
  CHECK(has(of_run.out.substr(of_run.out.find("step-6")), ", latest\n"));
  const Ran of_step = ckpt({"inspect", run + "/step-4/"});
  CAPTURE(of_step);
  CHECK(of_step.exit_code == 0);
  CHECK(has(of_step.out, "checkpoint  " + run + "/step-4"));
  CHECK(has(of_step.out, "llama, 2 layers, hidden 24"));
  CHECK(has(of_step.out, "; 13,032 parameters\n"));
  CHECK(has(of_step.out, "step        4, after "));
  CHECK(has(of_step.out, "written by 1 rank\n"));
  CHECK(has(of_step.out, "\nmodel: 21 tensors, 13,032 values, 50.9 KiB in 1 file\n"));
  CHECK(has(of_step.out, "\nexp_avg_sq: 21 tensors"));
  CHECK(has(of_step.out, "  lm_head.weight "));
  CHECK(has(of_step.out, " F32 [53, 24]  5,088 bytes\n"));
  const Ran of_model = ckpt({"inspect", run + "/model"});
  CHECK(has(of_model.out, "model       " + run + "/model\n"));
  CHECK(!has(of_model.out, "exp_avg"));
  fs::remove(run + "/step-2/train_state.json");
  const Ran of_damaged = ckpt({"inspect", run});
  CHECK(has(of_damaged.out, "  step-2  " + run + "/step-2/train_state.json: cannot open: No such file"));
  CHECK(has(of_damaged.out, "\n  step-4  "));
  check_refused({"inspect", "ckpt_made/corpus.tok"}, "no such folder");
  check_refused({"inspect", "ckpt_made"}, "has no checkpoint");
}

TEST_CASE("verify finds nothing in what is whole, and names each damaged block and missing file") {
  const std::string run = copy_of_run("ckpt_verify"), step = run + "/step-6";
  const Ran whole = ckpt({"verify", run});
  CAPTURE(whole);
  CHECK(whole.exit_code == 0);
  CHECK(whole.out.starts_with(step + ": all is well, "));
  CHECK(ckpt({"verify", run + "/model"}).exit_code == 0);

  flip_byte(step + "/exp_avg.safetensors", 20000);
  flip_byte(step + "/model.safetensors", 50000);
  const Ran damaged = ckpt({"verify", step});
  CAPTURE(damaged);
  CHECK(damaged.exit_code == 1);
  CHECK(has(damaged.out, "exp_avg.safetensors: damaged between byte 0 and byte "));
  CHECK(has(damaged.out, "model.safetensors: damaged between byte 0 and byte "));
  CHECK(damaged.out.ends_with(step + ": 2 problems\n"));

  fs::remove(run + "/step-4/config.json");
  fs::resize_file(run + "/step-4/train_state.json", 10);
  const Ran missing = ckpt({"verify", run + "/step-4"});
  CAPTURE(missing);
  CHECK(missing.exit_code == 1);
  CHECK(has(missing.out, "config.json: cannot open: No such file or directory\n"));
  CHECK(has(missing.out, "train_state.json: has 10 bytes, was written with "));
  fs::remove(run + "/step-2/checksums");
  CHECK(has(ckpt({"verify", run + "/step-2"}).out, "checksums: cannot open"));
}

TEST_CASE("verify names the tensors that are not those of config.json") {
  const std::string run = copy_of_run("ckpt_shapes");
  for (const std::string folder : {"/model", "/step-6"}) {
    const std::string path = run + folder + "/config.json";
    std::string config = test::read_file(path);
    config.replace(config.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 3");
    config.replace(config.find("\"vocab_size\": 53"), 16, "\"vocab_size\": 54");
    write_file(path, config);
  }
  const Ran model = ckpt({"verify", run + "/model"}), step = ckpt({"verify", run + "/step-6"});
  CAPTURE(model);
  CHECK(model.exit_code == 1);
  CHECK(has(model.out, "9 missing: model.layers.2."));
  CHECK(has(model.out, "lm_head.weight [53, 24] for [54, 24]"));
  CAPTURE(step);
  CHECK(step.exit_code == 1);
  CHECK(has(step.out, "config.json: damaged between byte 0 and byte "));
  CHECK(has(step.out, "lm_head.weight is [53, 24], config.json makes it [54, 24]\n"));
  CHECK(has(step.out, "model.safetensors: model.layers.2.mlp.up_proj.weight [40, 24] is missing\n"));
  CHECK(has(step.out, ": 16 problems\n"));  // the config, 2 shapes in 3 files each, and 9 weights
}

TEST_CASE("diff tells equal bits from other values, and by how much, and states") {
  const std::string run = copy_of_run("ckpt_diff"), step = run + "/step-6";
  const Ran same = ckpt({"diff", run, step});
  CAPTURE(same);
  CHECK(same.exit_code == 0);
  CHECK(same.out ==
        "tensors: 63 equal bit for bit, 0 different, 0 in one folder only; other differences: 0\n");
  fs::copy(step, run + "/other", fs::copy_options::recursive);
  fs::remove(run + "/other/config.json");
  fs::copy(step + "/config.json", run + "/other/config.json");
  change_state(run + "/other",
               [](TrainState& state) { state.tokens = 7, state.config["optimizer.lr"] = "3.0"; });
  flip_byte(run + "/other/model.safetensors",
            static_cast<int64_t>(fs::file_size(run + "/other/model.safetensors")) - 4);  // the lowest bit
  const Ran other = ckpt({"diff", step, run + "/other"});
  CAPTURE(other);
  CHECK(other.exit_code == 1);
  CHECK(has(other.out, ": 1 of "));
  CHECK(has(other.out, " values differ, by at most "));
  CHECK(has(other.out, "\nconfig optimizer.lr: 0.01, 3.0\n"));
  CHECK(has(other.out, ", 7\n"));
  CHECK(other.out.ends_with(
      "tensors: 62 equal bit for bit, 1 different, 0 in one folder only; other differences: 2\n"));
  const Ran folders = ckpt({"diff", step, run + "/model"});
  CHECK(folders.exit_code == 1);
  CHECK(has(folders.out, "exp_avg: lm_head.weight: only in " + step));
  CHECK(has(folders.out, "tensors: 21 equal bit for bit, 0 different, 42 in one folder only"));
  check_refused({"diff", step, "nowhere"}, "nowhere: no such folder");
}

TEST_CASE("best is the checkpoint with the lowest evaluation loss, the first of equal ones") {
  const std::string run = copy_of_run("ckpt_best");
  CHECK(ckpt({"best", run}).out == run + "/step-4  evaluation loss 3.25\n");
  set_loss(run + "/step-2", 3.25);
  CHECK(ckpt({"best", run}).out == run + "/step-2  evaluation loss 3.25\n");
  set_loss(run + "/step-2", {});
  set_loss(run + "/step-4", {});
  CHECK(ckpt({"best", run}).out == run + "/step-6  evaluation loss 3.75\n");
  set_loss(run + "/step-6", {});
  check_refused({"best", run}, "no checkpoint of 3 has an evaluation loss");
  check_refused({"best", run + "/model"}, "has no checkpoint");
}

TEST_CASE(
    "an export in f32 is the model that the run has written, byte for byte, in as many files as asked") {
  const std::string run = copy_of_run("ckpt_export"), out = run + "/out";
  fs::create_directories(out + ".tmp/left");  // by an interrupted export
  CHECK(ckpt({"export", run, out}).exit_code == 0);
  CHECK(names_in(out) == std::set<std::string>{"config.json", "model.safetensors"});
  for (const std::string name : {"config.json", "model.safetensors"})
    CHECK(test::read_file(out + "/" + name) == test::read_file(run + "/model/" + name));
  CHECK(!fs::exists(out + ".tmp"));
  check_refused({"export", run, out}, out + ": is there already");

  const Ran cut = ckpt({"export", run + "/model", run + "/cut", "--shard-size", "20KB"});
  CAPTURE(cut);
  CHECK(cut.exit_code == 0);
  CHECK(names_in(run + "/cut") == std::set<std::string>{"config.json", "model-00001-of-00003.safetensors",
                                                        "model-00002-of-00003.safetensors",
                                                        "model-00003-of-00003.safetensors",
                                                        "model.safetensors.index.json"});
  CHECK(ckpt({"diff", out, run + "/cut"}).exit_code == 0);
  const Ran back = ckpt({"export", run + "/cut/", run + "/back/"});
  CHECK(test::read_file(run + "/back/model.safetensors") == test::read_file(out + "/model.safetensors"));
}

TEST_CASE("an export in 16 bits rounds every value to the nearest, and says so in config.json") {
  const std::string run = copy_of_run("ckpt_round");
  const TensorSets exact(run);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::string out = str(run, '/', dtype);
    CHECK(ckpt({"export", run, out, "--dtype", name_of(dtype)}).exit_code == 0);
    const TensorSets rounded(out);
    for (const auto& [name, entry] : exact.weights().entries()) {
      const SafetensorsEntry* const narrow = rounded.weights().find(name);
      REQUIRE(narrow != nullptr);
      CHECK(narrow->dtype == safetensors_name(dtype));
      std::vector<float> values = all_floats(*narrow), expected = all_floats(*entry);
      for (float& value : expected)
        value = dtype == DType::bf16 ? static_cast<float>(bf16(value)) : static_cast<float>(f16(value));
      CHECK(values == expected);
    }
    CHECK(has(test::read_file(out + "/config.json"),
              dtype == DType::bf16 ? "\"torch_dtype\": \"bfloat16\"" : "\"torch_dtype\": \"float16\""));
  }
}

TEST_CASE("an export that cannot be made leaves nothing behind") {
  const std::string run = copy_of_run("ckpt_refused"), model = run + "/model", out = run + "/out";
  const TensorSets sets(run);
  std::vector<SafetensorsSpec> specs = specs_of(sets.config());
  std::vector<float> values(2000, 0.5f);
  values[3] = 70000;
  write_model(model, test::read_file(model + "/config.json"), specs, values);
  check_refused({"export", model, out, "--dtype", "f16"},
                "element 3 is 70000, which is infinite in f16: choose another dtype");
  CHECK(ckpt({"export", model, run + "/wide", "--dtype", "bf16"}).exit_code == 0);
  specs[0].dtype = DType::i32;
  write_model(model, test::read_file(model + "/config.json"), specs, values);
  check_refused({"export", model, out}, "\"model.embed_tokens.weight\" is I32, must be F32, BF16 or F16");
  fs::remove(run + "/step-6/exp_avg.safetensors");
  check_refused({"export", run, out}, "exp_avg.safetensors: cannot open");
  check_refused({"export", run + "/step-4", out, "--shard-size", "many"}, "--shard-size is \"many\"");
  check_refused({"export", run + "/step-4", out, "--dtype", "f64"}, "--dtype");
  CHECK(!fs::exists(out));
  CHECK(!fs::exists(out + ".tmp"));
}

TEST_CASE("merge writes the best checkpoint as a full model") {
  const std::string run = copy_of_run("ckpt_merge");
  const Ran merged = ckpt({"merge", run, run + "/best"});
  CAPTURE(merged);
  CHECK(merged.exit_code == 0);
  CHECK(has(merged.out, run + "/step-4: evaluation loss 3.25, the lowest of 3 checkpoints\n"));
  CHECK(test::read_file(run + "/best/model.safetensors") ==
        test::read_file(run + "/step-4/model.safetensors"));
  flip_byte(run + "/step-4/exp_avg.safetensors", 20000);
  check_refused({"merge", run, run + "/damaged"}, "step-4: is damaged, so it is not merged");
  CHECK(!fs::exists(run + "/damaged"));
}

TEST_CASE("merge onto a base keeps what only the base has") {
  const std::string run = copy_of_run("ckpt_base"), base = run + "/base";
  std::string config = test::read_file(run + "/model/config.json");
  config.insert(config.find('{') + 1, "\n  \"eos_token_ids\": [1, 2],");
  std::vector<SafetensorsSpec> specs = specs_of(TensorSets(run).config());
  for (SafetensorsSpec& spec : specs) spec.dtype = DType::bf16;
  specs.push_back({"vision.weight", DType::f32, {3}});
  write_model(base, config, specs, std::vector<float>(2000, 0.5f));
  write_file(base + "/tokenizer.json", "{}");
  const Ran merged = ckpt({"merge", run, run + "/out", "--base", base});
  CAPTURE(merged);
  CHECK(merged.exit_code == 0);
  CHECK(names_in(run + "/out") ==
        std::set<std::string>{"config.json", "model.safetensors", "tokenizer.json"});
  CHECK(test::read_file(run + "/out/tokenizer.json") == "{}");
  CHECK(test::read_file(run + "/out/config.json") == config);
  const SafetensorsFile written(run + "/out/model.safetensors"),
      checkpoint(run + "/step-4/model.safetensors");
  CHECK(written.entries().size() == 22);
  CHECK(all_floats(*written.find("vision.weight")) == std::vector<float>(3, 0.5f));
  CHECK(written.find("lm_head.weight")->dtype == "BF16");
  std::vector<float> expected = all_floats(*checkpoint.find("lm_head.weight"));
  for (float& value : expected) value = static_cast<float>(bf16(value));
  CHECK(all_floats(*written.find("lm_head.weight")) == expected);

  specs[0].name = "embedding";
  write_model(base, config, specs, std::vector<float>(2000, 0.5f));
  check_refused({"merge", run, run + "/no", "--base", base}, "model.embed_tokens.weight is missing");
  check_refused({"merge", run, run + "/no", "--base", run}, "is a checkpoint, must be a model folder");
  CHECK(!fs::exists(run + "/no"));
}

TEST_CASE("merge takes GPT-2 as it was first published as a base, masks and a second head along") {
  fs::remove_all("ckpt_gpt2");
  const test::Workshop workshop("ckpt_gpt2");
  const test::Finished trained =
      workshop.train(1, "--model.family=gpt2 --run.dir=run --checkpoint.save_every=6 --data.seq_len=16");
  REQUIRE_MESSAGE(trained.exit_code == 0, trained.output);
  const std::string run = workshop.file("run"), base = workshop.file("base");
  // The model's own values under the old names, but for one of them.
  const SafetensorsFile model(run + "/model/model.safetensors");
  std::vector<SafetensorsSpec> specs;
  for (const SafetensorsEntry& entry : model.entries())
    specs.push_back({entry.name.substr(std::string("transformer.").size()), DType::f32, entry.shape});
  specs.push_back({"h.0.attn.bias", DType::i32, {1, 1, 4, 4}});
  specs.push_back({"lm_head.weight", DType::f32, {53, 24}});
  fs::create_directories(base);
  write_file(base + "/config.json", test::read_file(run + "/model/config.json"));
  const SafetensorsLayout layout(specs);
  SafetensorsWriter writer(base + "/model.safetensors", layout, true);
  const std::vector<float> ones(24, 1.0f);
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string name = specs[i].name == "lm_head.weight" ? "wte.weight" : specs[i].name;
    if (const SafetensorsEntry* const entry = model.find("transformer." + name))
      writer.write(i, 0, name == "ln_f.weight" ? ones.data() : all_floats(*entry).data(), layout.elements(i));
  }
  writer.finish();

  const Ran diffed = ckpt({"diff", base, run + "/model"});
  CAPTURE(diffed);
  CHECK(diffed.exit_code == 1);
  CHECK(has(diffed.out, "model: transformer.ln_f.weight: 24 of 24 values differ"));
  CHECK(has(diffed.out, "27 equal bit for bit, 1 different, 0 in one folder only; other differences: 0"));
  CHECK(ckpt({"verify", base}).exit_code == 0);
  const Ran merged = ckpt({"merge", run, workshop.file("out"), "--base", base});
  CAPTURE(merged);
  CHECK(merged.exit_code == 0);
  const Ran same = ckpt({"diff", workshop.file("out"), run + "/model"});
  CAPTURE(same);
  CHECK(same.exit_code == 0);
  CHECK(TensorSets(workshop.file("out")).weights().entries().size() == 28);
  CHECK(ckpt({"export", base, workshop.file("exported"), "--dtype", "bf16"}).exit_code == 0);
}

TEST_CASE("names from a file move no terminal") {
  const std::string run = copy_of_run("ckpt_names"), model = run + "/model";
  write_model(model, test::read_file(model + "/config.json"), {{"a\x1b[2Jb\n", DType::f32, {1}}}, {1.0f});
  for (const Ran& ran : {ckpt({"inspect", model}), ckpt({"verify", model}), ckpt({"diff", model, run})}) {
    CAPTURE(ran);
    CHECK(has(ran.out, "a [2Jb "));
    CHECK(!has(ran.out, "\x1b"));
  }
}

TEST_CASE("a command line that ckpt does not know is refused, and each command has its help") {
  for (const std::string command : {"inspect", "verify", "diff", "best", "export", "merge"}) {
    const Ran help = ckpt({command, "--help"});
    CHECK(help.exit_code == 0);
    CHECK(has(help.out, "Usage: ckpt " + command));
    check_refused({command}, "required");
  }
  CHECK(has(ckpt({"--help"}).out, "Exit code: 0 when all is well"));
  check_refused({}, "A subcommand is required");
  check_refused({"explain", "x"}, "A subcommand is required");
  check_refused({"verify", "a", "b"}, "b");
}
