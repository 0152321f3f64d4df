#pragma once
// The log-probabilities of answers under the weights that a run starts from. DPO, IPO and a policy's
// divergence compare the model's log-probabilities with them. They are computed once, before the first step,
// by the model itself, and kept (text/data/kept_files.h) by a hash of reference_settings() and the tokens, so
// that values of other tokens, weights or precisions are never taken.

#include <string>
#include <vector>

#include "comm/world.h"
#include "train/run/run_inputs.h"
#include "train/step/engine.h"

namespace flatshard {

// Everything that the log-probabilities depend on except the tokens, as a JSON object: the initial weights,
// files of the model and of the adapter, and settings. `weights` is the fingerprint of the initial weights,
// "" if they are random.
std::string reference_settings(const Config& config, const std::string& weights);

class Reference {
 public:
  // Collective. Nothing is missing if the loss has no reference. The arguments must outlive it.
  Reference(const RunSetup& setup, const RunInputs& inputs, World& world);

  // Whether a file is missing on any rank.
  bool is_missing() const { return is_missing_; }
  // Computes the files that are missing. The engine has the initial weights. Collective.
  void make(Engine& engine);
  struct File {
    std::string tokens, identity;  // the token file, and all that its values depend on, as JSON
    std::string path() const;
  };
  // The reference files of data.train, then of data.eval.
  const std::vector<File>& files() const { return files_; }

 private:
  void make(const File& file, Engine& engine);

  const RunSetup& setup_;
  World& world_;
  std::vector<File> files_;
  bool is_missing_ = false;
};

// Opens the columns that the loss reads, of all inputs. Collective.
void open_columns(const AnswerLoss& loss, const Reference& reference, RunInputs& inputs, SharedSums& sums);

}  // namespace flatshard
