// bench/on_gpu as far as it works without a GPU, and the bench as a server.

#include <filesystem>
#include <fstream>
#include <iterator>

#include "build_config.h"
#include "runtime/json.h"
#include "source_dir.h"
#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::test;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string on_gpu(const std::string& options) {
  return str("PYTHON=no-python '", kSourceDir, "/bench/on_gpu' ", options);
}

}  // namespace

TEST_CASE("bench --serve answers each line with a result and refuses an unknown case") {
  const std::string name = "rmsnorm_forward 128 x 2048 bf16";
  const Finished asked = run_command(
      str("printf '", name, "\\n", name, "\\nrmsnorm 1\\n' | @bench --serve --small --seconds 0.01"));
  CHECK(asked.exit_code == 1);
  CHECK(asked.output.find("bench: there is no case \"rmsnorm 1\"; --list prints all cases") !=
        std::string::npos);
  std::istringstream lines(asked.output);
  std::string line;
  REQUIRE(std::getline(lines, line));
  CHECK(nlohmann::json::parse(line)["ceilings"]["copy"]["rate"] > 0.0);
  for (int answer = 0; answer < 2; ++answer) {
    REQUIRE(std::getline(lines, line));
    const auto json = nlohmann::json::parse(line);
    CHECK(json["op"] == "rmsnorm_forward");
    CHECK(json["shape"] == "128 x 2048");
    CHECK(json["seconds"]["median"] > 0.0);
  }
}

TEST_CASE("bench --step --serve continues the same training run") {
  const Finished asked = run_command(
      "printf '\\n\\n' | @bench --step bf16 --serve --small --model tiny --seq 16 --batch 2 --seconds 0.01");
  REQUIRE_MESSAGE(asked.exit_code == 0, asked.output);
  std::istringstream lines(asked.output);
  std::string ready, first, second;
  REQUIRE(std::getline(std::getline(std::getline(lines, ready), first), second));
  CHECK(ready == "{}");
  const auto before = nlohmann::json::parse(first), after = nlohmann::json::parse(second);
  CHECK(before["tokens"] == 32);
  CHECK(before["mfu_full"] > before["mfu_causal"]);
  CHECK(before["memory_bytes"] > 0);
  CHECK(before["loss"] != after["loss"]);
}

TEST_CASE("bench --step times micro-steps with and without the update, with keys of the run") {
  const std::string step = "@bench --step bf16 --small --model tiny --seq 16 --batch 2 --seconds 0.01 ";
  const auto measured = [&](const std::string& options) {
    const Finished run = run_command(step + options + " --json step.json");
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    CHECK(run.output.find("without it") != std::string::npos);
    return nlohmann::json::parse(text_of("step.json"))["steps"][0];
  };
  const auto plain = measured("--micro-steps 3"),
             kept = measured("--micro-steps 3 --train.recompute=selective");
  CHECK(plain["tokens"] == 96);
  CHECK(plain["micro_steps"] == 3);
  CHECK(plain["update_seconds"] > 0.0);
  CHECK(plain["update_seconds"] < plain["seconds"]["median"]);
  CHECK(plain["tokens_per_second_without_update"] > plain["tokens_per_second"]);
  CHECK(kept["keys"][0] == "train.recompute=selective");
  CHECK(kept["memory_bytes"] < plain["memory_bytes"]);
}

TEST_CASE("bench --step --list plans a step for a GPU that is not here") {
  const std::string plan = "@bench --step bf16 --device cuda --list --model llama3-8b --seq 8192 ";
  const auto mib = [&](const std::string& options) {
    const Finished run = run_command(plan + options);
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    CHECK(missing_from(run.output, {"llama3-8b, bf16, 1 x 8192 tokens x 1: ", " parameters, ", " trained, ",
                                    " MiB"}) == "");
    return std::stoll(run.output.substr(run.output.rfind(", ") + 2));
  };
  CHECK(run_command(plan + "--batch 1").output.find(" 8030261248 parameters, 8030261248 trained") !=
        std::string::npos);
  CHECK(mib("--batch 1 --train.recompute=true") < mib("--batch 1"));
  CHECK(mib("--batch 1 --lora.rank=16 --quant.base=nf4") < mib("--batch 1 --lora.rank=16"));
}

TEST_CASE("bench refuses unknown options and keys, and a model whose speed nobody publishes") {
  const auto said = [](const std::string& options) {
    const Finished run = run_command("@bench " + options);
    CHECK(run.exit_code == 1);
    return run.output;
  };
  CHECK(missing_from(said("--step --recompute"), {"--recompute", "unknown option"}) == "");
  CHECK(missing_from(said("rmsnorm --train.recompute=true"), {"--train.recompute=true", "--step"}) == "");
  CHECK(missing_from(said("--step --list --train.recompute=some"),
                     {"train.recompute", "some", "selective"}) == "");
  CHECK(missing_from(said("--step bf16 --small --model tiny --seq 16 --batch 2 --seconds 0.01 --peer"),
                     {"--peer", "tiny", "qwen2.5-0.5b", "qwen2.5-1.5b"}) == "");
  CHECK(missing_from(said("--step --ops"), {"--ops", "--device cuda"}) == "");
}

TEST_CASE("bench --rounds times cases in turns, and --repeat compares the bits of their results") {
  const std::string small = "@bench --small rmsnorm bf16 ";
  const Finished timed = run_command(small + "--seconds 0.01 --rounds 2 --json rounds.json");
  REQUIRE_MESSAGE(timed.exit_code == 0, timed.output);
  CHECK(timed.output.find("medians of 2 rounds") != std::string::npos);
  const auto cases = nlohmann::json::parse(text_of("rounds.json"))["cases"];
  REQUIRE(cases.size() % 2 == 0);
  for (size_t i = 0; i < cases.size() / 2; ++i) {
    const auto &first = cases[i], &second = cases[i + cases.size() / 2];
    CHECK(first["op"] == second["op"]);
    CHECK(first["shape"] == second["shape"]);
  }
  const Finished repeated = run_command(small + "--repeat 3");
  REQUIRE_MESSAGE(repeated.exit_code == 0, repeated.output);
  CHECK(missing_from(repeated.output, {"rmsnorm_backward", "3 runs, one result, SHA-256"}) == "");
}

TEST_CASE("bench --step --lora --serve answers with a step of each run") {
  const Finished asked = run_command(
      "printf '\\n\\n' | @bench --step fp32 --lora --lora-dropout 0.1 --serve --small --model tiny --seq 16 "
      "--batch 2");
  REQUIRE_MESSAGE(asked.exit_code == 0, asked.output);
  std::istringstream lines(asked.output);
  std::string ready, first, second;
  REQUIRE(std::getline(std::getline(std::getline(lines, ready), first), second));
  CHECK(ready == "{}");
  const auto before = nlohmann::json::parse(first), after = nlohmann::json::parse(second);
  for (const char* run : {"adapters", "frozen", "full"}) {
    CAPTURE(run);
    CHECK(before[run]["seconds"] > 0.0);
    CHECK(before[run]["loss"] != after[run]["loss"]);
  }
}

TEST_CASE("a dry run without a GPU passes all stages and reports what is missing") {
  if (*kSanitizer != '\0') return test::skip("programs with a sanitizer are too slow");
  const Finished run =
      run_command(on_gpu("--dry --commit none --out results --build \"$(dirname @bench)/..\""), 300);
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  const std::string report = text_of("results/README.md");
  CAPTURE(report);
  CHECK(report.starts_with("# A dry run, not a measurement"));
  CHECK(report.find("| machine | passed") != std::string::npos);
  CHECK(report.find("| build | skipped: a dry run uses") != std::string::npos);
  CHECK(report.find("| ranks | passed") != std::string::npos);
  CHECK(report.find("| steps | passed") != std::string::npos);
  CHECK(report.find("| peers | skipped: no-python has no torch") != std::string::npos);
  CHECK(report.find("| sanitize | skipped") != std::string::npos);
  CHECK(nlohmann::json::parse(text_of("results/steps/tiny-16.json"))["steps"].size() == 1);
  CHECK(text_of("results/machine.txt").find("commit: none\n") != std::string::npos);
}

TEST_CASE("a dry run of the stages of speed checks the commands of every stage") {
  if (*kSanitizer != '\0') return test::skip("programs with a sanitizer are too slow");
  const Finished run = run_command(on_gpu("--dry --suite speed --commit none --out speed --only "
                                          "attention,traces,variants,losses,adapters,races,counters "
                                          "--build \"$(dirname @bench)/..\""),
                                   300);
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  const std::string report = text_of("speed/README.md");
  CAPTURE(report);
  CHECK(missing_from(report, {"| rivals | missing: not run", "bench --device cuda --seconds 0.1 --rounds 3",
                              "attention_backward 16*1024 x 14/2 x 64 causal bf16",
                              "bench --device cuda --repeat 1000 attention_backward",
                              "qwen2.5-0.5b, bf16, 32 x 1024 tokens x 16: 494032768 parameters",
                              "head_loss_backward 16384 x 1536 to 151936 by 1024", "--quant.base=nf4"}) ==
        "");
  const Finished broken = run_command(
      str("cp -r '", kSourceDir,
          "/bench' . && sed -i s/--rounds/--turns/ bench/gpu/speed.sh && bench/on_gpu --dry --suite speed ",
          "--commit none --out broken --only attention --build \"$(dirname @bench)/..\""));
  CHECK(broken.exit_code == 1);
  CHECK(text_of("broken/README.md").find("| attention | failed: exit code 1") != std::string::npos);
}

TEST_CASE("a dry run of the stages of speed and of several GPUs passes" * doctest::test_suite("nightly") *
          doctest::skip()) {
  const auto report = [](const std::string& stages) {
    const Finished run = run_command(
        on_gpu(str("--dry ", stages, " --commit none --out all --build \"$(dirname @bench)/..\"")), 900);
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    return text_of("all/README.md");
  };
  if (kCublasBuilt)
    CHECK(missing_from(report("--suite speed"),
                       {"| attention | passed", "fp8_block_product 8192 x 28672 x 4096"}) == "");
  const std::string several = report("--gpus 4");
  CAPTURE(several);
  CHECK(missing_from(several, {"| llama | passed", "collectives hold on 4 ranks", "one hash of 9 runs",
                               "rank 3: compute waits", "2 ranks of a host exchange, then the 2 hosts",
                               "one hash of 2 runs"}) == "");
}

TEST_CASE("a stage that timed out or was not selected is reported as missing, and the others are kept") {
  const std::string to = "--dry --commit none --out partial --build \"$(dirname @bench)/..\" ";
  CHECK(run_command(on_gpu(to + "--only machine")).exit_code == 0);
  CHECK(run_command(on_gpu(to + "--only ranks,steps --minutes 0")).exit_code == 0);
  const std::string report = text_of("partial/README.md");
  CAPTURE(report);
  CHECK(report.find("| machine | passed") != std::string::npos);
  CHECK(report.find("| ranks | not run: no time was left") != std::string::npos);
  CHECK(report.find("| ops | missing") != std::string::npos);
}

TEST_CASE("bench/on_gpu reports a wrong argument and the valid values") {
  const auto said = [](const std::string& options) { return run_command(on_gpu(options)).output; };
  CHECK(said("--only fast").find("there is no stage fast; there are: machine build") != std::string::npos);
  CHECK(said("--suite slow").find("--suite is slow, must be first or speed") != std::string::npos);
  CHECK(said("--gpus 9").find("--gpus is 9, must be 2 to 8") != std::string::npos);
  CHECK(said("--package here").find("--package is for --suite speed and for --gpus") != std::string::npos);
  CHECK(said("--deps").find("--deps needs a value") != std::string::npos);
  CHECK(said("--deps nowhere").find("nowhere; bench/gather_deps fills one") != std::string::npos);
  CHECK(said("--dry --build nowhere").find("bin/bench is missing") != std::string::npos);
  CHECK(said(str("--dry --build \"$(dirname @bench)/..\" --out '", kSourceDir, "/bench/results/dry'"))
            .find("must not be in bench/results") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(str(kSourceDir, "/bench/results/dry")));
}

TEST_CASE("gather_deps copies headers from the first folder that has them") {
  for (const char* header :
       {"one/doctest/doctest.h", "one/nlohmann/json.hpp", "one/CLI/CLI.hpp", "one/toml++/toml.h"}) {
    std::filesystem::create_directories(std::filesystem::path(header).parent_path());
    std::ofstream(header) << "// of one\n";
  }
  const std::string gather = str("'", kSourceDir, "/bench/gather_deps' ");
  CHECK(run_command(gather + "gathered one").exit_code == 0);
  CHECK(text_of("gathered/toml++/toml.h") == "// of one\n");
  CHECK(run_command(gather).output.find("name the folder to fill") != std::string::npos);
  const Finished bad = run_command(gather + "gathered --openmpi gathered/toml++/toml.h one");
  CHECK(bad.exit_code == 1);
  CHECK(bad.output.find("cannot unpack") != std::string::npos);
}
