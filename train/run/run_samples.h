#pragma once
// The samples of a run (log.samples): prompts that the model continues at every evaluation and, if the model
// comes from model.init_from, before the first step.

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
  // Reads the prompts on rank 0. Returns them as JSON, for all ranks.
  std::string read(const RunSetup& setup);
  void take_prompts(const std::string& shared);

  World& world_;
  int decider_;                              // the rank whose tokens count
  std::optional<TextCodec> codec_{};         // set on rank 0 only
  std::vector<std::string> names_{};         // names of the prompts for the user, on rank 0 only
  std::optional<ImageInput> image_input_{};  // set on every rank, as are the members below
  std::vector<TextPrompt> prompts_{};
  Tokens ends_{};
};

// The first texts, on one line each, for the terminal; "" if there are none.
std::string describe(const std::vector<SampleText>& samples);

}  // namespace flatshard
