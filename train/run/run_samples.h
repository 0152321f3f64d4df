#pragma once
// The samples of a run (log.samples): prompts that the model continues at every evaluation and, if it comes
// from model.init_from, before the first step.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hub/text_codec.h"
#include "train/report/sample_texts.h"
#include "train/step/engine.h"

namespace flatshard {

class RunSamples {
 public:
  // Rank 0 reads the prompts. Collective: throws on every rank if they cannot be used.
  RunSamples(const RunSetup& setup, World& world);

  bool empty() const { return prompts_.empty(); }
  // The texts of all prompts; none on ranks other than 0, or if `interrupted` is true on any rank. To be
  // called by all ranks.
  std::vector<SampleText> take(Engine& engine, int64_t step, const std::function<bool()>& interrupted) const;

 private:
  // Returns what the other ranks need to know.
  std::string read(const RunSetup& setup);
  void take_prompts(const std::string& shared);

  World& world_;
  int decider_;                              // the rank whose tokens count
  std::optional<TextCodec> codec_{};         // of rank 0, as are the names
  std::vector<std::string> names_{};         // of the prompts, for people
  std::optional<ImageInput> image_input_{};  // of every rank, as is what follows
  std::vector<TextPrompt> prompts_{};
  Tokens ends_{};
};

// The first texts, on one line each, for the terminal; "" if there are none.
std::string describe(const std::vector<SampleText>& samples);

}  // namespace flatshard
