#include "train/run/run_samples.h"

#include <sstream>

#include "comm/agreement.h"
#include "runtime/base64.h"
#include "runtime/check.h"
#include "runtime/json.h"
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
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // the cut is not within a character
  return printable(text.substr(0, end)) + "...";
}

}  // namespace

RunSamples::RunSamples(const RunSetup& setup, World& world)
    : world_(world), decider_((setup.pipeline.stages - 1) * setup.groups.ranks) {
  if (setup.config.log.samples.empty()) return;
  std::string mine;
  succeed_together(world, [&] {
    if (world.rank() == 0) mine = read(setup);
  });
  take_prompts(world.all_gather_texts(mine, "the prompts of log.samples").front());
}

void RunSamples::take_prompts(const std::string& shared) {
  const Json all = parse_json<Json>(shared);
  ends_ = all["ends"].get<Tokens>();
  if (all.contains("image_input")) image_input_ = parse_image_input(all["image_input"].get<std::string>());
  for (const Json& prompt : all["prompts"]) {
    std::vector<ShownImage> images;
    for (const Json& image : prompt["images"])
      images.push_back({.source = {.bytes = from_base64(image["bytes"].get<std::string>()).value(),
                                   .is_object = image["is_object"].get<bool>()},
                        .size = {image["width"].get<int64_t>(), image["height"].get<int64_t>()}});
    prompts_.push_back({prompt["tokens"].get<Tokens>(), std::move(images)});
  }
}

std::string RunSamples::read(const RunSetup& setup) {
  const Config& config = setup.config;
  codec_.emplace(tokenizer_folder(config), config.init_from, setup.model.vocab, config.data.chat_template,
                 config.data.date);
  const std::vector<PromptRecord> records = read_records(config.log.samples);
  check(records.size() <= kMostPrompts, config.log.samples, ": has ", records.size(),
        " prompts, must have at most ", kMostPrompts, ": every evaluation continues all of them");
  Json shared{{"ends", codec_->end_tokens()}, {"prompts", Json::array()}};
  if (codec_->image_input()) shared["image_input"] = to_json(*codec_->image_input());
  for (const PromptRecord& record : records) {
    const auto [tokens, images] = encode_prompt(*codec_, record);
    check(!tokens.empty() && std::ssize(tokens) < setup.sample_length(), record.where, ": the prompt has ",
          counted(std::ssize(tokens), "token"), ", must have from 1 to ", setup.sample_length() - 1,
          ", so that a text of log.sample_length = ", setup.sample_length(), " tokens can follow");
    Json shown = Json::array();
    for (const auto& [message, source, size] : images)
      shown.push_back({{"bytes", to_base64(read_image(source))},
                       {"is_object", source.is_object},
                       {"width", size.width},
                       {"height", size.height}});
    shared["prompts"].push_back({{"tokens", tokens}, {"images", std::move(shown)}});
    names_.push_back(record.question);
  }
  return json_text(shared);
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
  const auto texts = engine.continue_texts(prompts_, image_input_, ends_, share);
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
