// ckpt export and ckpt merge, on the checkpoints of a real run and on folders made by hand.

#include <cmath>
#include <filesystem>

#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/tools/ckpt/ckpt_run.h"
#include "tests/workshop.h"
#include "tools/ckpt/model_output.h"
#include "tools/ckpt/tensor_sets.h"

using namespace flatshard;
using namespace flatshard::test;
namespace fs = std::filesystem;

TEST_CASE(
    "an export in f32 is the model that the run has written, byte for byte, in as many files as asked") {
  const std::string run = copy_of_run("ckpt_export"), out = run + "/out";
  fs::create_directories(out + ".tmp/left");  // another's
  CHECK(ckpt({"export", run, out}).exit_code == 0);
  CHECK(names_in(out) == std::set<std::string>{"config.json", "model.safetensors"});
  for (const std::string name : {"config.json", "model.safetensors"})
    CHECK(read_file(out + "/" + name) == read_file(run + "/model/" + name));
  CHECK(fs::exists(out + ".tmp/left"));
  check_refused({"export", run, out}, out + ": already exists");

  const Ran cut = ckpt({"export", run + "/model", run + "/cut", "--shard-size", "20KB"});
  CAPTURE(cut);
  CHECK(cut.exit_code == 0);
  CHECK(names_in(run + "/cut") == std::set<std::string>{"config.json", "model-00001-of-00003.safetensors",
                                                        "model-00002-of-00003.safetensors",
                                                        "model-00003-of-00003.safetensors",
                                                        "model.safetensors.index.json"});
  CHECK(ckpt({"diff", out, run + "/cut"}).exit_code == 0);
  const Ran back = ckpt({"export", run + "/cut/", run + "/back/"});
  CHECK(read_file(run + "/back/model.safetensors") == read_file(out + "/model.safetensors"));
}

TEST_CASE("experts in MXFP4 are exported, and quantized again, with the values that they stand for") {
  const std::string published = str(kSourceDir, "/tests/golden/folders/gpt_oss_mxfp4"),
                    run = copy_of_run("ckpt_mxfp4"), all = "model.layers.1.mlp.experts.gate_up_proj",
                    part = "model.layers.1.mlp.experts.3.gate_up_proj.weight";
  REQUIRE(ckpt({"export", published, run + "/bf16"}).exit_code == 0);
  REQUIRE(ckpt({"quantize", published, run + "/nf4", "--experts"}).exit_code == 0);
  CHECK(!has(read_file(run + "/bf16/config.json"), "quantization_config"));
  CHECK(has(read_file(run + "/nf4/config.json"), "\"quant_method\": \"bitsandbytes\""));
  const TensorFolder as_in_files(run + "/bf16", "model");
  REQUIRE(as_in_files.find(all) != nullptr);
  CHECK(as_in_files.find(all)->shape == std::vector<int64_t>{5, 32, 64});
  CHECK(as_in_files.find(all + "_blocks") == nullptr);
  const TensorSets from(published), to(run + "/bf16"), quantized(run + "/nf4");
  const int64_t count = 32 * 64;
  std::vector<float> values(count), written(count), rounded(count);
  weights_of(from)->read(part, 0, count, values.data());
  weights_of(to)->read(part, 0, count, written.data());
  weights_of(quantized)->read(part, 0, count, rounded.data());
  CHECK(written == values);
  double error = 0, size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(static_cast<double>(rounded[i] - values[i]), 2);
    size += std::pow(static_cast<double>(values[i]), 2);
  }
  CHECK(error > 0);
  CHECK(std::sqrt(error / size) < 0.15);  // NF4 has 16 values to a block
}

TEST_CASE("a 16-bit export rounds to nearest and sets the dtype in config.json") {
  const std::string run = copy_of_run("ckpt_round");
  const TensorSets exact(run);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::string out = str(run, '/', dtype);
    CHECK(ckpt({"export", run, out, "--dtype", name_of(dtype)}).exit_code == 0);
    const TensorSets rounded(out);
    for (const auto& [name, entry] : exact.sets().front().tensors.entries()) {
      const SafetensorsEntry* const narrow = rounded.sets().front().tensors.find(name);
      REQUIRE(narrow != nullptr);
      CHECK(narrow->dtype == safetensors_name(dtype));
      std::vector<float> values = all_floats(*narrow), expected = all_floats(*entry);
      for (float& value : expected)
        value = dtype == DType::bf16 ? static_cast<float>(bf16(value)) : static_cast<float>(f16(value));
      CHECK(values == expected);
    }
    CHECK(has(read_file(out + "/config.json"),
              dtype == DType::bf16 ? "\"torch_dtype\": \"bfloat16\"" : "\"torch_dtype\": \"float16\""));
  }
}

TEST_CASE("a failed export leaves nothing behind") {
  const std::string run = copy_of_run("ckpt_refused"), model = run + "/model", out = run + "/out";
  const TensorSets sets(run);
  std::vector<SafetensorsSpec> specs = specs_of(sets.config());
  std::vector<float> values(2000, 0.5f);
  values[3] = 70000;
  write_model(model, read_file(model + "/config.json"), specs, values);
  check_refused({"export", model, out, "--dtype", "f16"},
                "element 3 is 70000, which overflows to infinity in f16: choose another dtype");
  CHECK(ckpt({"export", model, run + "/wide", "--dtype", "bf16"}).exit_code == 0);
  specs[0].dtype = DType::i32;
  write_model(model, read_file(model + "/config.json"), specs, values);
  check_refused({"export", model, out}, ": model.embed_tokens.weight is I32, must be F32, BF16 or F16");
  fs::remove(run + "/step-6/exp_avg.safetensors");
  check_refused({"export", run, out}, "exp_avg.safetensors: cannot open");
  check_refused({"export", run + "/step-4", out, "--shard-size", "many"}, "--shard-size is \"many\"");
  check_refused({"export", run + "/step-4", out, "--dtype", "f64"}, "--dtype");
  for (const std::string& name : names_in(run)) CHECK(!name.starts_with("out"));
}

TEST_CASE("merge writes the best checkpoint as a complete model") {
  const std::string run = copy_of_run("ckpt_merge");
  const Ran merged = ckpt({"merge", run, run + "/best"});
  CAPTURE(merged);
  CHECK(merged.exit_code == 0);
  CHECK(has(merged.out, run + "/step-4: evaluation loss 3.25, the lowest of 3 checkpoints\n"));
  CHECK(read_file(run + "/best/model.safetensors") == read_file(run + "/step-4/model.safetensors"));
  flip_byte(run + "/step-4/exp_avg.safetensors", 20000);
  check_refused({"merge", run, run + "/damaged"}, "step-4: is damaged and cannot be merged");
  CHECK(!fs::exists(run + "/damaged"));
}

TEST_CASE("merge takes the latest checkpoint of a run without evaluations, and says so") {
  const std::string run = copy_of_run("ckpt_merge_latest");
  for (const int step : {2, 4, 6}) set_loss(str(run, "/step-", step), {});
  const Ran latest = ckpt({"merge", run, run + "/latest_model"});
  CAPTURE(latest);
  CHECK(latest.exit_code == 0);
  CHECK(latest.out.starts_with(
      run + "/step-6: the latest of 3 checkpoints, none of which has an evaluation loss\n"));
  CHECK(read_file(run + "/latest_model/model.safetensors") == read_file(run + "/step-6/model.safetensors"));
}

TEST_CASE("merge onto a base keeps tensors that only the base has") {
  const std::string run = copy_of_run("ckpt_base"), base = run + "/base";
  std::string config = read_file(run + "/model/config.json");
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
  CHECK(read_file(run + "/out/tokenizer.json") == "{}");
  CHECK(read_file(run + "/out/config.json") == config);
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

TEST_CASE("merge accepts the original GPT-2 release as a base, with its masks and second head") {
  fs::remove_all("ckpt_gpt2");
  const Workshop workshop("ckpt_gpt2");
  const Finished trained =
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
  write_file(base + "/config.json", read_file(run + "/model/config.json"));
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
  CHECK(TensorSets(workshop.file("out")).sets().front().tensors.entries().size() == 28);
  CHECK(ckpt({"export", base, workshop.file("exported"), "--dtype", "bf16"}).exit_code == 0);
}
