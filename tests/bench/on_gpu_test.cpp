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
  const std::string name = "rmsnorm_forward 512 x 2048 bf16";
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
    CHECK(json["shape"] == "512 x 2048");
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
