// The commands inspect, verify, diff and best of ckpt, on the checkpoints of a real run.

#include <cmath>
#include <filesystem>

#include "checkpoint/tensor_folder.h"
#include "tests/checkpoint_content.h"
#include "tests/tensor_contents.h"
#include "tests/test.h"
#include "tests/tools/ckpt/ckpt_run.h"
#include "tests/workshop.h"

using namespace flatshard;
using namespace flatshard::test;
namespace fs = std::filesystem;

TEST_CASE("inspect describes a run, a checkpoint and a model folder") {
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
  CHECK(has(of_step.out, "\nmodel: 21 tensors (F32), 13,032 values, 50.9 KiB in 1 file\n"));
  CHECK(has(of_step.out, "\nexp_avg_sq: 21 tensors"));
  CHECK(!has(of_step.out, "lm_head.weight"));
  const Ran all = ckpt({"inspect", "--all", run + "/step-4/"});
  CHECK(has(all.out, "  lm_head.weight "));
  CHECK(has(all.out, " F32 [53, 24]  4.97 KiB\n"));
  const Ran of_model = ckpt({"inspect", run + "/model"});
  CHECK(has(of_model.out, "model       " + run + "/model\n"));
  CHECK(!has(of_model.out, "exp_avg"));
  fs::remove(run + "/step-2/train_state.json");
  const Ran of_damaged = ckpt({"inspect", run});
  CHECK(has(of_damaged.out, "  step-2  " + run + "/step-2/train_state.json: cannot open: No such file"));
  CHECK(has(of_damaged.out, "\n  step-4  "));
  check_refused({"inspect", "ckpt_made/corpus.tok"}, "corpus.tok: is neither a folder nor a GGUF file");
  check_refused({"inspect", "ckpt_made"}, "has no checkpoint");
}

TEST_CASE("verify accepts an intact checkpoint and names each damaged block and missing file") {
  const std::string run = copy_of_run("ckpt_verify"), step = run + "/step-6";
  const Ran whole = ckpt({"verify", run});
  CAPTURE(whole);
  CHECK(whole.exit_code == 0);
  CHECK(whole.out.starts_with(step + ": no problems; checksums of "));
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

TEST_CASE("verify names a tensor with a non-finite value") {
  const TensorFolder whole(copy_of_run("ckpt_nan_run") + "/model", "model");
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, entry] : whole.entries()) specs.push_back({name, DType::f32, entry->shape});
  std::vector<float> values(53 * 24);
  write_model("ckpt_nan", read_file("ckpt_nan_run/model/config.json"), specs, values);
  CHECK(ckpt({"verify", "ckpt_nan"}).exit_code == 0);
  values[10] = NAN;
  values[12] = -INFINITY;
  write_model("ckpt_nan", read_file("ckpt_nan_run/model/config.json"), specs, values);
  const Ran ran = ckpt({"verify", "ckpt_nan"});
  CAPTURE(ran);
  CHECK(ran.exit_code == 1);
  CHECK(has(ran.out, "model.safetensors: lm_head.weight: element 10 is nan, must be finite\n"));
  CHECK(ran.out.ends_with("ckpt_nan: 21 problems\n"));
}

TEST_CASE("verify names the tensors that do not match config.json") {
  const std::string run = copy_of_run("ckpt_shapes");
  for (const std::string folder : {"/model", "/step-6"}) {
    const std::string path = run + folder + "/config.json";
    std::string config = read_file(path);
    config.replace(config.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 3");
    config.replace(config.find("\"vocab_size\": 53"), 16, "\"vocab_size\": 54");
    write_file(path, config);
  }
  const Ran model = ckpt({"verify", run + "/model"}), step = ckpt({"verify", run + "/step-6"});
  CAPTURE(model);
  CHECK(model.exit_code == 1);
  CHECK(has(model.out, "9 missing: model.layers.2."));
  CHECK(has(model.out, "lm_head.weight [53, 24] instead of [54, 24]"));
  CAPTURE(step);
  CHECK(step.exit_code == 1);
  CHECK(has(step.out, "config.json: damaged between byte 0 and byte "));
  CHECK(has(step.out, "lm_head.weight is [53, 24], config.json requires [54, 24]\n"));
  CHECK(has(step.out, "model.safetensors: model.layers.2.mlp.up_proj.weight [40, 24] is missing\n"));
  CHECK(has(step.out, ": 16 problems\n"));  // the config, 2 shapes in 3 files each, and 9 weights
}

TEST_CASE("diff reports different tensors, the size of the difference, and different states") {
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
  CHECK(has(other.out, "largest difference: model: "));
  CHECK(has(other.out, ": 1 of "));
  CHECK(has(other.out, " values differ, by at most "));
  CHECK(!has(other.out, "--all"));  // it would show no more
  CHECK(has(other.out, "\nconfig optimizer.lr: 0.01, 3.0\n"));
  CHECK(has(other.out, ", 7\n"));
  CHECK(other.out.ends_with(
      "tensors: 62 equal bit for bit, 1 different, 0 in one folder only; other differences: 2\n"));
  const Ran folders = ckpt({"diff", step, run + "/model"});
  CHECK(folders.exit_code == 1);
  CHECK(folders.out.starts_with("with --all: 42 lines, one of each tensor\n"));
  CHECK(has(ckpt({"diff", "--all", step, run + "/model"}).out, "exp_avg: lm_head.weight: only in " + step));
  CHECK(has(folders.out, "tensors: 21 equal bit for bit, 0 different, 42 in one folder only"));
  check_refused({"diff", step, "nowhere"}, "nowhere: no such folder");
}

TEST_CASE("verify and diff read moments of 8 bits as codes with their scales") {
  fs::remove_all("ckpt_coded");
  const Finished made = Workshop("ckpt_coded")
                            .train(1,
                                   "--run.dir=run --model.hidden=32 --optimizer.kind=adamw8bit "
                                   "--train.steps=4 --checkpoint.save_every=2");
  REQUIRE_MESSAGE(made.exit_code == 0, made.output);
  const std::string run = "ckpt_coded/run", step = run + "/step-4", moments = step + "/exp_avg.safetensors",
                    name = "model.layers.0.mlp.down_proj.weight";
  CHECK(ckpt({"verify", step}).exit_code == 0);
  CHECK(ckpt({"diff", run, step}).exit_code == 0);
  const Ran trained = ckpt({"diff", "--all", run + "/step-2", step});
  CAPTURE(trained);
  CHECK(trained.exit_code == 1);
  CHECK(has(trained.out, "\nexp_avg: " + name + ": the bytes differ\n"));
  CHECK(has(trained.out, "\nexp_avg_sq: " + name + ".absmax: 5 of 5 values differ, by at most "));

  fs::copy(step, run + "/other", fs::copy_options::recursive);
  TensorContents contents = read_contents(moments);
  contents[name].bytes[7] ^= std::byte{1};
  write_contents(moments, contents);
  const Ran code = ckpt({"diff", "--all", step, run + "/other"});
  CAPTURE(code);
  CHECK(code.out.starts_with("exp_avg: " + name + ": the bytes differ\ntensors: "));
  CHECK(has(code.out, " 1 different, 0 in one folder only; other differences: 0\n"));
  CHECK(has(ckpt({"verify", step}).out, "exp_avg.safetensors: damaged between byte "));

  contents[name + ".absmax"].as<float>()[3] = NAN;
  shorten(contents["model.layers.1.mlp.down_proj.weight.absmax"]);
  contents.erase("model.layers.1.mlp.up_proj.weight.absmax");
  contents["lm_head.weight.absmax"] = contents[name + ".absmax"];  // of a moment in fp32
  write_contents(moments, contents);
  const Ran harmed = ckpt({"verify", step});
  CAPTURE(harmed);
  CHECK(harmed.exit_code == 1);
  CHECK(has(harmed.out, moments + ": " + name + ".absmax: element 3 is nan, must be finite\n"));
  CHECK(has(harmed.out, "model.layers.1.mlp.down_proj.weight.absmax is [4], config.json requires [5]\n"));
  CHECK(has(harmed.out, "model.layers.1.mlp.up_proj.weight.absmax is missing\n"));
  CHECK(has(harmed.out, "lm_head.weight.absmax is not in the model of config.json\n"));
}

TEST_CASE("inspect, verify and diff read the one moment of Lion") {
  fs::remove_all("ckpt_lion");
  const Finished made = Workshop("ckpt_lion")
                            .train(1,
                                   "--run.dir=run --optimizer.kind=lion --optimizer.lr=1e-3 --train.steps=4 "
                                   "--checkpoint.save_every=2");
  REQUIRE_MESSAGE(made.exit_code == 0, made.output);
  const std::string run = "ckpt_lion/run", step = run + "/step-4";
  const Ran inspected = ckpt({"inspect", step});
  CHECK(has(inspected.out, "\nexp_avg: 21 tensors"));
  CHECK(!has(inspected.out, "exp_avg_sq"));
  CHECK(ckpt({"verify", step}).exit_code == 0);
  CHECK(has(ckpt({"diff", run, step}).out, "tensors: 42 equal bit for bit"));
  CHECK(has(ckpt({"diff", "--all", run + "/step-2", step}).out, "\nexp_avg: lm_head.weight: "));
  fs::remove(step + "/exp_avg.safetensors");
  CHECK(ckpt({"verify", step}).exit_code != 0);
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
  check_refused({"best", run}, "none of its 3 checkpoints has an evaluation loss");
  check_refused({"best", run + "/model"}, "has no checkpoint");
  check_refused({"best", "ckpt_nowhere"}, "ckpt_nowhere: no such folder");
  write_file(run + "/step-4/train_state.json", "{");
  check_refused({"best", run}, "; it may be the best checkpoint: remove " + run +
                                   "/step-4, or name a checkpoint by its path");
}

TEST_CASE("names from a file send no control characters to the terminal") {
  const std::string run = copy_of_run("ckpt_names"), model = run + "/model";
  write_model(model, read_file(model + "/config.json"), {{"a\x1b[2Jb\n", DType::f32, {1}}}, {1.0f});
  for (const Ran& ran :
       {ckpt({"inspect", "--all", model}), ckpt({"verify", model}), ckpt({"diff", "--all", model, run})}) {
    CAPTURE(ran);
    CHECK(has(ran.out, "a [2Jb "));
    CHECK(!has(ran.out, "\x1b"));
  }
}

TEST_CASE("an invalid ckpt command line is refused, and each command has help") {
  for (const std::string command : {"inspect", "verify", "diff", "best", "export", "merge"}) {
    const Ran help = ckpt({command, "--help"});
    CHECK(help.exit_code == 0);
    CHECK(has(help.out, "Usage: ckpt " + command));
    check_refused({command}, "required");
  }
  CHECK(has(ckpt({"--help"}).out, "Exit code: 0 on success"));
  const std::string commands =
      "inspect, verify, diff, best, export, merge, merge-adapter, quantize; see ckpt --help";
  check_refused({}, "a command is missing: " + commands);
  check_refused({"explain", "x"}, "explain: unknown command; the commands are " + commands);
  check_refused({"inspct", "x"},
                "inspct: unknown command; did you mean inspect? The commands are " + commands);
  check_refused({"verify", "a", "b"}, "b; usage: ckpt verify DIR [OPTIONS], see ckpt verify --help");
  check_refused({"inspect", "--al", "x"},
                "--al: unknown option; did you mean --all? See ckpt inspect --help");
}
