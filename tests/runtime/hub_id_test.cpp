#include "runtime/hub_id.h"

#include <filesystem>

#include "runtime/whole_file.h"
#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a name on the hub where a folder is meant is answered with the command that downloads it") {
  CHECK(download_advice("HuggingFaceTB/SmolLM2-135M")
            .ends_with(": hf download HuggingFaceTB/SmolLM2-135M --local-dir SmolLM2-135M"));
  std::filesystem::create_directory("hub_id_runs");
  for (const char* path : {"", "gpt2", "/models/llama", "./llama", "../llama", "~/llama", "a/b/c", "a/",
                           "a/.b", "hub_id_runs/mine", "data/tiny-tokenizer"})
    CHECK_MESSAGE(download_advice(path) == "", path);
  std::filesystem::remove("hub_id_runs");
}

TEST_CASE("every program that takes a model answers a name on the hub with the download") {
  const std::string id = "SomeOrg/some-model", corpus = "hub_id_corpus.jsonl";
  write_whole_file(corpus, "{\"text\": \"a\"}\n");
  write_whole_file("hub_id.toml", "[optimizer]\nlr = 1.0\n");
  for (const std::string& command :
       {"train hub_id.toml --model.init_from=" + id, "train hub_id.toml --model.adapter=" + id,
        "train hub_id.toml --data.tokenizer=" + id, "generate --prompt a " + id,
        "evaluate loss " + id + " a.tok", "generate --prompt a --adapter " + id, "ckpt inspect " + id,
        "ckpt export " + id + " out", "prepare --out a.tok --tokenizer " + id + ' ' + corpus}) {
    const test::Finished run = test::run_command("@" + command);
    CHECK(run.exit_code != 0);
    CHECK_MESSAGE(
        run.output.find("hf download SomeOrg/some-model --local-dir some-model") != std::string::npos,
        run.output);
  }
}
