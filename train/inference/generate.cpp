// generate [FOLDER] [options]: continues a text with a trained model. See --help.

#include <chrono>
#include <iomanip>
#include <iostream>
#include <optional>
#include <tuple>

#include <CLI/CLI.hpp>

#include "runtime/program_end.h"
#include "runtime/reason.h"
#include "runtime/standard_streams.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/config/device_choice.h"
#include "train/inference/continuation.h"
#include "train/inference/text_codec.h"
#include "train/text/corpus.h"

using namespace flatshard;

namespace {

constexpr char kAbout[] =
    "Continues a text with a trained model.\n\n"
    "FOLDER is a model folder (config.json, model.safetensors) or a run folder with a model/.\n"
    "By default it is the last run, whose path runs/latest records in this folder or the nearest one "
    "above.\n\n"
    "If the vocabulary is 256, a token is a byte of text. Otherwise prompt and output are token numbers\n"
    "separated by spaces.";

constexpr int64_t kMostPromptBytes = int64_t{16} << 20;

struct Options {
  std::string folder, dtype = "fp32", device = "auto";
  std::optional<std::string> prompt, prompt_file;
  int64_t max_tokens = 200, samples = 1, seed = 1;
  SamplerOptions sampler{.temperature = 0.8};
};

void declare(CLI::App& app, Options& o) {
  app.add_option("folder", o.folder, "model folder or run folder")->type_name("FOLDER");
  auto* prompt =
      app.add_option("--prompt", o.prompt, "text to continue; default if tokens are bytes: a line break");
  app.add_option("--prompt-file", o.prompt_file, "file with the text to continue")
      ->type_name("FILE")
      ->excludes(prompt);
  app.add_option("--max-tokens", o.max_tokens, "tokens to generate")->capture_default_str();
  app.add_option("--temperature", o.sampler.temperature,
                 "sampling temperature: lower values favour likely tokens")
      ->capture_default_str();
  app.add_option("--top-k", o.sampler.top_k, "sample from the k most likely tokens; 0: all")
      ->capture_default_str();
  app.add_option("--top-p", o.sampler.top_p,
                 "sample from the most likely tokens whose probabilities sum to this; 1: all")
      ->capture_default_str();
  app.add_option("--seed", o.seed, "random seed; sample i uses seed + i")->capture_default_str();
  app.add_option("--samples", o.samples, "number of continuations")->capture_default_str();
  app.add_option("--dtype", o.dtype, "compute dtype")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--device", o.device, "compute device; auto: a GPU if available")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(const Options& o) {
  const Sampler checked(o.sampler);  // before anything is loaded
  for (const auto& [name, value, least] :
       {std::tuple{"--max-tokens", o.max_tokens, 1}, {"--samples", o.samples, 1}, {"--seed", o.seed, 0}})
    check(value >= least && value <= INT32_MAX, name, " is ", value, ", must be from ", least, " to ",
          INT32_MAX);
  const std::string folder = find_model_folder(o.folder);
  const int64_t vocab = read_hf_config(folder + "/config.json").vocab;
  const bool is_given = o.prompt || o.prompt_file;
  check(is_given || vocab == kByteVocab, "--prompt is missing: the vocabulary is ", vocab,
        ", so give token numbers, such as --prompt \"1 15 7\"");
  const std::string text =
      o.prompt_file ? read_whole_file(*o.prompt_file, kMostPromptBytes) : o.prompt.value_or("\n");
  const std::vector<int32_t> prompt = tokens_of_text(text, vocab);
  check(!prompt.empty(), "the prompt is empty, must have at least one token");

  const int64_t prompt_tokens = static_cast<int64_t>(prompt.size());
  Generator generator(folder, {.dtype = o.dtype == "bf16" ? DType::bf16 : DType::f32,
                               .capacity = prompt_tokens + o.max_tokens,
                               .device = choose_device("--device", o.device)});
  if (const std::string note = why_on_cpu(o.device); !note.empty()) std::cerr << note << '\n';
  double seconds = 0;
  for (int64_t i = 0; i < o.samples; ++i) {
    SamplerOptions options = o.sampler;
    options.seed = static_cast<uint64_t>(o.seed + i);
    if (i > 0) std::cout << "\n---\n";
    for (const int32_t token : prompt) std::cout << text_of_token(token, vocab);
    generator.read_prompt(0, prompt);
    const auto start = std::chrono::steady_clock::now();
    continue_text(generator, o.max_tokens, Sampler(options), {}, [&](int64_t, int32_t token) {
      std::cout << text_of_token(token, vocab) << std::flush;
      return true;
    });
    seconds += seconds_since(start);
  }
  std::cout << std::endl;
  const int64_t tokens = o.samples * o.max_tokens;
  std::cerr << std::fixed << std::setprecision(2) << tokens << " tokens in " << seconds << " s, "
            << std::setprecision(1) << static_cast<double>(tokens) / seconds << " tokens/s\n";
}

}  // namespace

int main(int argc, char** argv) {
  reserve_standard_streams();
  CLI::App app(kAbout);
  Options options;
  declare(app, options);
  try {
    app.parse(argc, argv);
    run(options);
    return end_program("generate", 0, std::cout, std::cerr);
  } catch (const CLI::Success& help) {
    return end_program("generate", app.exit(help), std::cout, std::cerr);
  } catch (const std::exception& error) {
    std::cerr << "generate: " << printable(reason_of(error)) << '\n';
    return 1;
  }
}
