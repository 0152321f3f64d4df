#include "train/run/run_samples.h"

#include <sstream>

#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"
#include "comm/agreement.h"
#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "text/chat/prompt_file.h"
#include "train/setup/run_data.h"

namespace flatshard {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostPrompts = 256;
constexpr int64_t kMostBytes = 1 << 24;

std::vector<PromptRecord> read_records(const std::string& path) {
  if (path.ends_with(".jsonl")) return read_prompt_file(path);
  std::istringstream text(read_whole_file(path, kMostBytes));
  std::vector<PromptRecord> records;
  int64_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    records.push_back({.where = str(path, ':', number), .json = "", .prompt = line, .question = line});
  }
  check(!records.empty(), path, ": has no prompts, must have one in each line");
  return records;
}

// The beginning of a text, without line breaks.
std::string one_line(std::string text) {
  constexpr size_t kMost = 60;
  if (text.size() <= kMost) return printable(text);
  size_t end = kMost;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not within a letter
  return printable(text.substr(0, end)) + "...";
}

}  // namespace

RunSamples::RunSamples(const RunSetup& setup, World& world)
    : world_(world), decider_((setup.pipeline.stages - 1) * setup.groups.ranks) {
  if (setup.config.log.samples.empty()) return;
  succeed_together(world, [&] {
    if (world.rank() == 0) read(setup);
  });
  const std::string mine = world.rank() == 0 ? json_text(Json{prompts_, ends_}) : "";
  const Json all = parse_json<Json>(world.all_gather_texts(mine, "the prompts of log.samples").front());
  prompts_ = all[0].get<std::vector<Tokens>>();
  ends_ = all[1].get<Tokens>();
}

void RunSamples::read(const RunSetup& setup) {
  const Config& config = setup.config;
  codec_.emplace(tokenizer_folder(config), config.init_from, setup.model.vocab, config.data.chat_template,
                 config.data.date);
  ends_ = codec_->end_tokens();
  const std::vector<PromptRecord> records = read_records(config.log.samples);
  check(records.size() <= kMostPrompts, config.log.samples, ": has ", records.size(),
        " prompts, must have at most ", kMostPrompts, ": every evaluation continues all of them");
  for (const PromptRecord& record : records) {
    Tokens tokens =
        record.conversation ? codec_->encode(*record.conversation) : codec_->encode(record.prompt);
    check(!tokens.empty() && std::ssize(tokens) < setup.sample_length(), record.where, ": the prompt has ",
          counted(std::ssize(tokens), "token"), ", must have from 1 to ", setup.sample_length() - 1,
          ", so that a text of log.sample_length = ", setup.sample_length(), " tokens can follow");
    prompts_.push_back(std::move(tokens));
    names_.push_back(record.question);
  }
}

std::vector<SampleText> RunSamples::take(Engine& engine, int64_t step,
                                         const std::function<bool()>& interrupted) const {
  const auto share = [&](std::span<int32_t> tokens) {
    std::vector<double> mine(tokens.begin(), tokens.end());
    mine.push_back(interrupted());
    const std::vector<double> all = world_.all_gather(mine, "samples");
    const double* const decided = &all[static_cast<size_t>(decider_) * mine.size()];
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(decided[i]);
    for (size_t at = tokens.size(); at < all.size(); at += mine.size())
      if (all[at] != 0) return false;
    return true;
  };
  const auto texts = engine.continue_texts(prompts_, ends_, share);
  std::vector<SampleText> samples;
  for (size_t i = 0; texts && i < names_.size(); ++i)
    samples.push_back({step, names_[i], codec_->decode((*texts)[i])});
  return samples;
}

std::string describe(const std::vector<SampleText>& samples) {
  constexpr size_t kMostShown = 3;
  std::string lines;
  for (size_t i = 0; i < std::min(samples.size(), kMostShown); ++i)
    lines +=
        str(i == 0 ? "" : "\n", "sample    ", one_line(samples[i].prompt), " -> ", one_line(samples[i].text));
  return lines;
}

}  // namespace flatshard
