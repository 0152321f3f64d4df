// Samples of a run, through the programs train and generate.

#include <algorithm>
#include <filesystem>
#include <vector>

#include "hub/prompt_images.h"
#include "runtime/whole_file.h"
#include "tests/test.h"
#include "tests/text/data/image_tokens.h"
#include "tests/train/image_workshop.h"
#include "tools/inference/continuation.h"
#include "train/report/sample_texts.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

// The weights are far from their initial values, so that a text depends on all tokens and their positions.
const std::string kOptions =
    "--precision.compute=fp32 --train.steps=6 --train.eval_every=2 --optimizer.lr=0.3 ";
const std::string kSamples = kOptions + "--log.samples=prompts.txt --log.sample_length=14 ";

// Prompts of token numbers, as the model has no tokenizer: more than are continued at once.
std::vector<std::string> prompts() {
  std::vector<std::string> lines;
  for (int i = 0; i < 11; ++i) {
    std::string line = std::to_string(i);
    for (int j = 1; j <= i; ++j) line += str(' ', 3 * i + j);
    lines.push_back(line);
  }
  return lines;
}

void write_prompts(const test::Workshop& workshop) {
  std::string text;
  for (const std::string& line : prompts()) text += line + "\n\n";
  write_whole_file(workshop.file("prompts.txt"), text);
}

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<SampleText> run_with(const test::Workshop& workshop, int ranks, const std::string& options,
                                 const std::string& hash) {
  const test::Finished run = workshop.train(ranks, kSamples + "--run.dir=run " + options);
  CAPTURE(run.output);
  CHECK(run.exit_code == 0);
  if (!hash.empty()) CHECK(hash_of(run) == hash);
  return read_samples(workshop.file("run/samples.jsonl"));
}

// What generate writes after a prompt.
std::string generated(const test::Workshop& workshop, const std::string& model, size_t prompt) {
  return test::run_command(str("cd ", workshop.file(""), " && @generate ", model,
                               " --dtype fp32 --temperature 0 --max-new-tokens ", 13 - prompt, " --prompt '",
                               prompts()[prompt], "' 2>/dev/null"))
      .output;
}

}  // namespace

TEST_CASE("samples are what generate writes, and change nothing else in a run") {
  const test::Workshop workshop("samples");
  write_prompts(workshop);
  const test::Finished plain = workshop.train(1, kOptions + "--run.dir=run");
  CHECK(!fs::exists(workshop.file("run/samples.jsonl")));
  const std::vector<SampleText> samples = run_with(workshop, 1, "", hash_of(plain));
  REQUIRE(samples.size() == 3 * prompts().size());
  for (size_t i = 0; i < samples.size(); ++i) {
    CHECK(samples[i].step == static_cast<int64_t>(2 * (i / prompts().size() + 1)));
    CHECK(samples[i].prompt == prompts()[i % prompts().size()]);
  }
  for (size_t i = 0; i < prompts().size(); ++i) {
    CAPTURE(prompts()[i]);
    const std::string text = generated(workshop, "run/model", i);
    CHECK_MESSAGE(has(text, samples[2 * prompts().size() + i].text), text);
    CHECK(!samples[2 * prompts().size() + i].text.empty());
  }
  const std::string page = read_whole_file(workshop.file("run/report.html"), 1 << 22);
  // Texts may be longer than the sequences of training.
  const std::string longer =
      run_with(workshop, 1, "--data.seq_len=8 --model.max_positions=16", "")[2 * prompts().size()].text;
  CHECK(std::count(longer.begin(), longer.end(), ' ') > 8);
  CHECK(has(generated(workshop, "run/model", 0), longer));
  CHECK(has(page, "<details open>\n<summary>Samples of step 6</summary>"));
  CHECK(has(page, str("<td>", samples.back().prompt, "</td><td>", samples.back().text, "</td>")));
}

TEST_CASE("samples do not depend on ranks, strategies or stages") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("samples_of_ranks");
  write_prompts(workshop);
  const std::vector<SampleText> one = run_with(workshop, 1, "", "");
  REQUIRE(!one.empty());
  CHECK(run_with(workshop, 2, "", "") == one);
  CHECK(run_with(workshop, 2, "--parallel.strategy=no_shard", "") == one);
  CHECK(run_with(workshop, 2, "--parallel.stages=2", "") == one);
  CHECK(run_with(workshop, 2, "--parallel.wrap=attention_mlp --parallel.offload=true", "") == one);
}

TEST_CASE("samples continue the text of adapters, and of 4-bit weights") {
  const test::Workshop workshop("samples_lora");
  write_prompts(workshop);
  REQUIRE(workshop.train(1, kOptions + "--run.dir=base").exit_code == 0);
  for (const std::string& more : {std::string(), std::string("--quant.base=nf4")}) {
    CAPTURE(more);
    const std::vector<SampleText> samples =
        run_with(workshop, 1, "--model.init_from=base/model --lora.rank=2 " + more, "");
    REQUIRE(samples.size() == 4 * prompts().size());
    CHECK(samples.front().step == 0);  // before training
    const std::string page = read_whole_file(workshop.file("run/report.html"), 1 << 22);
    CHECK(has(page, "<summary>Samples before training</summary>"));
    if (!more.empty()) continue;  // rounded weights
    const std::string text = generated(workshop, "base/model", 10);
    CHECK_MESSAGE(has(text, samples[10].text), text);
  }
}

TEST_CASE("a resumed run has the samples of one that never stopped") {
  const test::Workshop workshop("samples_resumed");
  write_prompts(workshop);
  const std::string saves = "--checkpoint.save_every=2 --data.eval=\"''\" ";
  const std::vector<SampleText> whole = run_with(workshop, 1, saves, "");
  REQUIRE(whole.size() == 3 * prompts().size());
  for (const std::string& folder : {std::string("run"), std::string("other")}) {
    const test::Finished resumed =
        workshop.train(1, kSamples + saves + "--run.dir=" + folder + " --resume run/step-4");
    CAPTURE(resumed.output);
    REQUIRE(resumed.exit_code == 0);
    CHECK(read_samples(workshop.file(folder + "/samples.jsonl")) == whole);
  }
}

namespace {

constexpr const char* kTalk =
    R"({"prompt": "What is"}
{"messages": [{"role": "user", "content": [{"type": "text", "text": "The loss?"}]}]}
{"messages": [{"role": "user", "content": [{"type": "image", "path": "a.jpeg"}, {"type": "text", "text": "One?"}]}]}
{"messages": [{"role": "user", "content": [{"type": "image", "path": "b.png"}, {"type": "text", "text": "Two?"}]},
 {"role": "assistant", "content": [{"type": "text", "text": "the loss"}]},
 {"role": "user", "content": [{"type": "image", "image": {"path": "b.png"}}, {"type": "image", "path": "a.jpeg"}]}]}
)";

// A workshop with a model that reads images, a text, and prompts in talk.jsonl.
test::Workshop seeing_workshop(const std::string& folder, const std::string& family, int64_t& vocab) {
  test::Workshop workshop(folder);
  vocab = test::write_seeing_model(workshop.file("model"), family);
  std::string talk = kTalk, text;
  for (size_t at; (at = talk.find(",\n ")) != talk.npos;) talk.replace(at, 3, ",");
  write_whole_file(workshop.file("talk.jsonl"), talk);
  for (int i = 0; i < 40; ++i) text += "{\"text\": \"the loss is what it is\"}\n";
  write_whole_file(workshop.file("text.jsonl"), text);
  for (const auto& [name, of] : {std::pair{"a.jpeg", "rgb.jpeg"}, {"b.png", "rgba_8.png"}})
    fs::copy_file(test::picture(of), workshop.file(name), fs::copy_options::overwrite_existing);
  return workshop;
}

constexpr int64_t kLength = 200;  // tokens of a prompt and its answer

// What generate answers to the prompts.
std::vector<std::string> answers(const test::Workshop& workshop, const std::string& model) {
  const std::string folder = workshop.file(model);
  Generator generator(folder, {.capacity = kLength});
  const TextCodec codec(folder, generator.config().vocab);
  std::vector<std::string> all;
  for (const PromptRecord& record : read_prompt_file(workshop.file("talk.jsonl"))) {
    const TextPrompt prompt = encode_prompt(codec, record);
    const std::vector<Request> requests{{prompt.tokens, kLength - std::ssize(prompt.tokens),
                                         Sampler({.temperature = 0}),
                                         images_of(codec.image_input(), prompt.images)}};
    all.push_back(codec.decode(continue_prompts(generator, requests, codec.end_tokens()).front().tokens));
  }
  return all;
}

}  // namespace

TEST_CASE("samples of models that read images are what generate writes, on any ranks and stages") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  for (const std::string family : {"idefics2", "smolvlm", "qwen2_5_vl"}) {
    CAPTURE(family);
    int64_t vocab = 0;
    const test::Workshop workshop = seeing_workshop("samples_seeing_" + family, family, vocab);
    const std::string options =
        str("--model.init_from=model --model.vocab=", vocab,
            " --data.train=text.jsonl --data.eval=text.jsonl --data.max_patches=16 --precision.compute=fp32 "
            "--train.steps=1 --log.samples=talk.jsonl --log.sample_length=",
            kLength, ' ');
    const auto samples = [&](int ranks, const std::string& more) {
      const test::Finished run = workshop.train(ranks, options + "--run.dir=run " + more);
      CHECK_MESSAGE(run.exit_code == 0, run.output);
      return read_samples(workshop.file("run/samples.jsonl"));
    };
    const std::vector<SampleText> one = samples(1, "");
    REQUIRE(one.size() == 8);
    for (const auto& [model, first] : {std::pair{"model", 0}, {"run/model", 4}}) {
      const std::vector<std::string> expected = answers(workshop, model);
      REQUIRE(expected.size() == 4);
      for (size_t i = 0; i < 4; ++i) {
        CAPTURE(i);
        CHECK(!expected[i].empty());
        CHECK(one[static_cast<size_t>(first) + i].text == expected[i]);
      }
    }
    CHECK(samples(2, "--parallel.wrap=attention_mlp --parallel.offload=true") == one);
    CHECK(samples(4, "--parallel.stages=4") == one);
    CHECK(samples(4, "--parallel.stages=2 --parallel.schedule=interleaved") == one);
  }
}

TEST_CASE("an image of a prompt that does not decode is refused before the first step, with its record") {
  int64_t vocab = 0;
  const test::Workshop workshop = seeing_workshop("samples_damaged", "smolvlm", vocab);
  std::string bytes = read_whole_file(workshop.file("b.png"), 1 << 20);
  bytes[bytes.size() - 40] ^= 1;
  write_whole_file(workshop.file("b.png"), bytes);
  const test::Finished run =
      workshop.train(1, str("--model.init_from=model --model.vocab=", vocab,
                            " --data.train=text.jsonl --data.eval=text.jsonl --log.samples=talk.jsonl"));
  CHECK(run.exit_code == 1);
  CHECK(test::missing_from(run.output, {"talk.jsonl:4: b.png: is a damaged PNG"}) == "");
  CHECK(!fs::exists(workshop.file("run/samples.jsonl")));
}

TEST_CASE("prompts that cannot be used are refused before the first step") {
  const test::Workshop workshop("samples_refused");
  write_prompts(workshop);
  write_whole_file(workshop.file("empty.txt"), "\n \n");
  const auto refusal = [&](const std::string& options) {
    const test::Finished run = workshop.train(1, options);
    CHECK(run.exit_code == 1);
    return run.output;
  };
  CHECK(has(refusal("--log.samples=prompts.txt --log.sample_length=11"),
            "prompts.txt:21: the prompt has 11 tokens, must have from 1 to 10, so that a text of "
            "log.sample_length = 11 tokens can follow"));
  CHECK(has(refusal("--log.samples=empty.txt"), "empty.txt: has no prompts, must have one in each line"));
  CHECK(has(refusal("--log.samples=none.txt"), "log.samples is \"none.txt\", which does not exist"));
  CHECK(has(refusal("--log.sample_length=9"), "log.sample_length = 9 has no effect without log.samples"));
  CHECK(has(refusal("--log.samples=prompts.txt --log.sample_length=17"),
            "log.sample_length = 17 is longer than model.max_positions = 16"));
  CHECK(has(refusal("--log.samples=prompts.txt --train.eval_every=0"),
            "log.samples is continued at every evaluation, but train.eval_every = 0"));
}
